"""What an executor can do: checked once, then asked for every task.

Rules: values; a change makes a new one. Names follow `core/names.py`. A requirement is looked up by its key, as
`core/requirements.py` makes it; a tool's may have an empty digest, which means any.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from stepgraph.v1 import executor_service_pb2
from stepgraph_server.core.canonical import CanonicalError, digest
from stepgraph_server.core.inputs import ToolOffer
from stepgraph_server.core.names import ID_PATTERN, MAX_MODEL_CHARACTERS, RESERVED_TOOLS, is_id
from stepgraph_server.executors.tool_schemas import schema_problem
from stepgraph_server.executors.violations import refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


RequirementKey: TypeAlias = tuple[str, ...]

MAX_CAPABILITIES: Final = 1_000
MAX_DESCRIPTION_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """All that one executor can do.

    Attributes:
        capabilities: What was declared, by what it is about; a model has an entry of its own.
        tools: Its tools, by name.
        exact: The keys of requirements that it meets.
        prefixes: Models that begin so are met, too.
    """

    capabilities: Mapping[RequirementKey, executor_service_pb2.Capability] = field(
        default_factory=dict
    )
    tools: Mapping[str, ToolOffer] = field(default_factory=dict)
    exact: frozenset[RequirementKey] = frozenset()
    prefixes: tuple[str, ...] = ()

    def can(self, key: RequirementKey) -> bool:
        """Whether the requirement is met."""
        return key in self.exact or (key[0] == "llm" and key[1].startswith(self.prefixes))

    def messages(self) -> list[executor_service_pb2.Capability]:
        """Return the capabilities for people: all models in one, everything else as it was declared."""
        models = [key[1] for key in self.capabilities if key[0] == "llm"]
        others = [message for key, message in self.capabilities.items() if key[0] != "llm"]
        llm = executor_service_pb2.Capability.Llm(models=models)
        return [*([executor_service_pb2.Capability(llm=llm)] if models else []), *others]


NOTHING: Final = Abilities()


def declare(
    capabilities: Iterable[executor_service_pb2.Capability], *, path: str = "capabilities"
) -> Abilities:
    """Take the capabilities of a hello. Unknown ones must have been taken out: see `unknown_kinds`.

    Raises:
        ViolationError: One of them is wrong, or declared twice, or there are too many.
    """
    declared: dict[RequirementKey, executor_service_pb2.Capability] = {}
    tools: dict[str, ToolOffer] = {}
    for index, capability in enumerate(capabilities):
        place = f"{path}[{index}]"
        for key in _check(capability, place):
            if key in declared:
                refuse(place, f"{' '.join(key)} is declared twice")
            declared[key] = capability
        if capability.WhichOneof("kind") == "tool":
            tools[capability.tool.definition.name] = _offer(capability.tool, place)
    return _build(declared, tools, path)


def change(
    abilities: Abilities,
    *,
    added: Iterable[executor_service_pb2.Capability],
    removed: Iterable[executor_service_pb2.Capability],
    path: str = "update",
) -> Abilities:
    """Return what remains after `removed` is taken away, and `added` put in or in the place of what has its name.

    Removing what isn't there is harmless.

    Raises:
        ViolationError: As for `declare`.
    """
    new = declare(added, path=f"{path}.added_capabilities")
    declared = dict(abilities.capabilities)
    tools = dict(abilities.tools)
    for capability in removed:
        for key in keys_of(capability):
            declared.pop(key, None)
            if key[0] == "tool":
                tools.pop(key[1], None)
    return _build(
        declared | dict(new.capabilities),
        tools | dict(new.tools),
        f"{path}.added_capabilities",
    )


def unknown_kinds(capabilities: Iterable[executor_service_pb2.Capability]) -> list[int]:
    """Return the positions of capabilities that are unset, or of a kind that is newer than this server."""
    return [
        index
        for index, capability in enumerate(capabilities)
        if capability.WhichOneof("kind") is None
    ]


def keys_of(capability: executor_service_pb2.Capability) -> list[RequirementKey]:
    """Return what a capability is about: one key, or one for each model."""
    kind = capability.WhichOneof("kind")
    match kind:
        case "llm":
            return [("llm", model) for model in capability.llm.models]
        case "tool":
            return [("tool", capability.tool.definition.name)]
        case "agent":
            return [("agent", capability.agent.kind)]
        case "condition":
            return [("condition", capability.condition.name)]
        case "step":
            return [("step", capability.step.program)]
        case "effect":
            return [("effect", capability.effect.kind)]
        case None:
            return []
        case _:
            assert_never(kind)


def _build(
    declared: dict[RequirementKey, executor_service_pb2.Capability],
    tools: dict[str, ToolOffer],
    path: str,
) -> Abilities:
    if len(declared) > MAX_CAPABILITIES:
        refuse(path, f"there are {len(declared)}, of at most {MAX_CAPABILITIES}")
    return Abilities(
        capabilities=declared,
        tools=tools,
        exact=frozenset(_exact(declared, tools)),
        prefixes=tuple(
            key[1].removesuffix("*") for key in declared if key[0] == "llm" and key[1][-1] == "*"
        ),
    )


def _exact(
    declared: Iterable[RequirementKey], tools: Mapping[str, ToolOffer]
) -> Iterator[RequirementKey]:
    for key in declared:
        if key[0] == "tool":
            yield ("tool", key[1], "")
            yield ("tool", key[1], tools[key[1]].digest)
        elif key[0] != "llm" or not key[1].endswith("*"):
            yield key


_NAME_FIELDS: Final = {
    "agent": "agent.kind",
    "condition": "condition.name",
    "step": "step.program",
    "effect": "effect.kind",
    "tool": "tool.definition.name",
}


def _check(capability: executor_service_pb2.Capability, path: str) -> list[RequirementKey]:
    kind = capability.WhichOneof("kind")
    if kind is None:
        refuse(path, "no kind is set, or one that this server does not know", "UNKNOWN_VARIANT")
    keys = keys_of(capability)
    if kind == "llm":
        _check_models(capability.llm.models, path)
        return keys
    name = keys[0][1]
    if not is_id(name):
        refuse(f"{path}.{_NAME_FIELDS[kind]}", f"{name[:80]!r} is not {ID_PATTERN}")
    if kind == "tool":
        _check_tool(capability.tool, f"{path}.tool")
    return keys


def _check_models(models: Iterable[str], path: str) -> None:
    count = 0
    for index, model in enumerate(models):
        count += 1
        if not 0 < len(model) <= MAX_MODEL_CHARACTERS or "*" in model[:-1]:
            refuse(
                f"{path}.llm.models[{index}]",
                f"{model[:80]!r} is not a name of 1 to {MAX_MODEL_CHARACTERS} characters, or a prefix with * at its end",
            )
    if not count:
        refuse(f"{path}.llm.models", "at least one model is needed")


def _check_tool(tool: executor_service_pb2.Capability.Tool, path: str) -> None:
    definition = tool.definition
    if definition.name in RESERVED_TOOLS:
        refuse(f"{path}.definition.name", f"{definition.name} is a tool of the server's own")
    if len(definition.description.encode()) > MAX_DESCRIPTION_BYTES:
        refuse(f"{path}.definition.description", f"is above {MAX_DESCRIPTION_BYTES} bytes")
    for name, text in (
        ("input_schema", definition.input_schema),
        ("output_schema", definition.output_schema),
    ):
        problem = schema_problem(text, of_arguments=name == "input_schema")
        if problem:
            refuse(f"{path}.definition.{name}", problem)


def _offer(tool: executor_service_pb2.Capability.Tool, path: str) -> ToolOffer:
    try:
        return ToolOffer(
            definition=tool.definition,
            digest=digest(tool.definition),
            requires_approval=tool.requires_approval,
        )
    except CanonicalError as error:
        refuse(f"{path}.tool.definition", str(error), "UNKNOWN_VARIANT")
