"""A real model in the rule planner's place: `make demo LLM=openai`, or `LLM=anthropic`.

`stepgraph executor …` hosts it under the name that the graphs ask for; neither they nor the other executor know. Where the API is
and its key are read from the provider's usual variables, and which model from OPENAI_MODEL or ANTHROPIC_MODEL.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

PROVIDERS = ("openai", "anthropic")
#: The model that the graphs ask for.
HOSTED_AS = "rule-planner"


class NoModelError(Exception):
    """It is not said which model is meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealModel:
    """A model of a provider's."""

    provider: str
    model: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """What `stepgraph` is called with to host it."""
        given = ("--model", f"{HOSTED_AS}={self.model}", "--executor-id", "model-host")
        return ("executor", self.provider, *given)


def real_model(provider: str) -> RealModel:
    """Return the provider's model that the environment names.

    Raises:
        NoModelError: it names none.
    """
    variable = f"{provider.upper()}_MODEL"
    # A demo is a program of its own, so it may read what its user has set.
    model = os.environ.get(variable, "")  # noqa: TID251
    if not model:
        message = (
            f"which model? Put its name into {variable}: {variable}=… make demo LLM={provider}"
        )
        raise NoModelError(message)
    return RealModel(provider=provider, model=model)
