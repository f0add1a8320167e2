"""JSON as text, where the schema has fields that hold it: schemas, arguments of tools, options of providers.

Rules: text that is given is taken as it is, so that every number stays as it was written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import BaseModel

#: JSON text, an object to be written as JSON, or a pydantic model whose schema is meant.
JsonLike = str | Mapping[str, object] | type[BaseModel]


def to_json_text(value: JsonLike) -> str:
    """Return JSON text for a field that holds it.

    Raises:
        ValueError: the object has NaN or an infinity in it, which JSON does not have.
        TypeError: the object has something in it that JSON does not have.
    """
    if isinstance(value, str):
        return value
    content = dict(value) if isinstance(value, Mapping) else value.model_json_schema()
    return json.dumps(content, ensure_ascii=False, allow_nan=False)
