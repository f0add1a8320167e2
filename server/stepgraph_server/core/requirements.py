"""What an executor must be able to do, as a key and as a message.

Rules: the key is a tuple that can be hashed and compared, ("llm", model), ("tool", name, digest), ("agent", kind),
("condition", name), ("step", program), ("effect", kind), or ("sleep",) and ("graph",), for which no executor is needed; the message is
what events and clients see of it.
"""

from __future__ import annotations

from functools import lru_cache

from stepgraph.v1 import task_pb2


@lru_cache(maxsize=4096)
def requirement_message(key: tuple[str, ...]) -> task_pb2.Requirement:
    """Return a key as a message. The message is shared: nobody changes it."""
    match key:
        case ("llm", model):
            return task_pb2.Requirement(llm=task_pb2.Requirement.Llm(model=model))
        case ("tool", name, digest):
            return task_pb2.Requirement(tool=task_pb2.Requirement.Tool(name=name, digest=digest))
        case ("agent", kind):
            return task_pb2.Requirement(agent=task_pb2.Requirement.Agent(kind=kind))
        case ("condition", name):
            return task_pb2.Requirement(condition=task_pb2.Requirement.Condition(name=name))
        case ("step", program):
            return task_pb2.Requirement(step=task_pb2.Requirement.Step(program=program))
        case ("effect", kind):
            return task_pb2.Requirement(effect=task_pb2.Requirement.Effect(kind=kind))
        case ("sleep" | "graph",):
            return task_pb2.Requirement()
        case _:
            raise AssertionError(key)


def requirement_key(requirement: task_pb2.Requirement) -> tuple[str, ...]:
    """Return a message as a key. Raises ValueError for a variant that this server does not know."""
    match requirement.WhichOneof("kind"):
        case "llm":
            return ("llm", requirement.llm.model)
        case "tool":
            return ("tool", requirement.tool.name, requirement.tool.digest)
        case "agent":
            return ("agent", requirement.agent.kind)
        case "condition":
            return ("condition", requirement.condition.name)
        case "step":
            return ("step", requirement.step.program)
        case "effect":
            return ("effect", requirement.effect.kind)
        case _:
            message = "a requirement of an unknown variant"
            raise ValueError(message)


def both_selectors(
    one: tuple[tuple[str, str], ...], other: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    """Return the labels that satisfy both. A contradiction matches no executor, and the run then says so."""
    if not other:
        return one
    return tuple(sorted({*one, *other})) if one else other
