"""Whether what a step program wants to await can be started.

Rules: as in `step_replies`. A reply may have ten thousand effects, so what is common about them is looked at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import transition_pb2
from stepgraph_server.core import json_text, schemas
from stepgraph_server.core.bad_reply import BadReply, refuse_violations
from stepgraph_server.core.decisions import MAX_ARGS_BYTES
from stepgraph_server.core.names import (
    ID_PATTERN,
    MAX_MODEL_CHARACTERS,
    RESERVED_TOOLS,
    is_id,
)
from stepgraph_server.core.schema_shape import SchemaError
from stepgraph_server.core.step_reply_graphs import check_graphs
from stepgraph_server.core.values import check_message, check_value

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.message import Message

    from stepgraph.v1 import llm_pb2, policy_pb2
    from stepgraph_server.core.inputs import RunLimits
    from stepgraph_server.core.state import Activation, RunState

MAX_SCHEMAS: Final = 256
"""Different schemas in one reply: each is compiled while every other run waits."""
MAX_TASK_BYTES: Final = 256 * 1024
MAX_SELECTOR_ENTRIES: Final = 64
MAX_TEMPERATURE: Final = 2.0
_MAX_TRIES: Final = 1_000
_MAX_SECONDS: Final = 315_576_000_000  # ten thousand years, as in google.protobuf.Duration
_ARGS_LIMITS: Final = json_text.JsonLimits(max_bytes=MAX_ARGS_BYTES)


def check_await(
    state: RunState,
    activation: Activation,
    awaited: transition_pb2.Transition.Await,
    path: str,
    limits: RunLimits,
) -> None:
    """Check an Await. Raises BadReply."""
    program = activation.program
    count = len(awaited.effects)
    if count == 0 and (program is None or not (program.open or program.fresh)):
        message = "there is nothing to wait for; name an effect, or end with Done"
        raise BadReply(path=f"{path}.effects", message=message, code="EMPTY_AWAIT")
    check_fan_out(count, f"{path}.effects", limits)
    if awaited.wake not in transition_pb2.WakePolicy.values():
        raise BadReply(path=f"{path}.wake", message="is not known to this server; use ALL or EACH")
    seen_schemas: set[str] = set()
    for index, effect in enumerate(awaited.effects):
        _check_effect(state, effect, f"{path}.effects[{index}]", seen_schemas)
    check_graphs(awaited.effects, f"{path}.effects")


def check_fan_out(count: int, path: str, limits: RunLimits) -> None:
    """Refuse more than may be asked for in one turn."""
    if count > limits.max_fan_out:
        message = f"has {count} entries, of at most {limits.max_fan_out}; ask for the rest in another turn"
        raise BadReply(path=path, message=message, code="FAN_OUT_LIMIT")


def _check_effect(
    state: RunState, effect: transition_pb2.Effect, path: str, seen_schemas: set[str]
) -> None:
    match effect.WhichOneof("kind"):
        case "llm":
            _check_model_call(state, effect.llm.request, f"{path}.llm.request", seen_schemas)
        case "tool":
            check_name(effect.tool.name, f"{path}.tool.name", "a tool")
            _check_args(effect.tool.args, f"{path}.tool.args")
        case "delegate":
            check_name(effect.delegate.agent_kind, f"{path}.delegate.agent_kind", "a kind of agent")
            _check_text(effect.delegate.task, f"{path}.delegate.task")
        case "custom":
            check_name(effect.custom.kind, f"{path}.custom.kind", "a kind of effect")
            if effect.custom.payload.WhichOneof("kind") is not None:
                refuse_violations(check_value(effect.custom.payload, f"{path}.custom.payload"))
        case "sleep":
            _check_sleep(effect.sleep, f"{path}.sleep")
        case "graph":
            pass  # all of a reply are looked at together
        case None:
            message = "is unset, or a variant that this server does not know; set llm, tool, graph, sleep, custom or delegate"
            raise BadReply(path=path, message=message)
    if effect.HasField("options"):
        _check_options(effect.options, f"{path}.options")


def check_name(name: str, path: str, what: str) -> None:
    """Refuse what can't be the name of something."""
    if not is_id(name):
        message = f"{name[:64]!r} can't be the name of {what}; it must match {ID_PATTERN}"
        raise BadReply(path=path, message=message)


def _check_text(text: str, path: str) -> None:
    size = len(text) if text.isascii() else len(text.encode())
    if size > MAX_TASK_BYTES:
        message = f"has {size} bytes, of at most {MAX_TASK_BYTES}"
        raise BadReply(path=path, message=message, code="PAYLOAD_TOO_LARGE")


def _check_args(args: str, path: str) -> None:
    if not args:
        return
    try:
        value = json_text.parse(args, _ARGS_LIMITS)
    except json_text.JsonTextError as error:
        raise BadReply(path=path, message=f"is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadReply(path=path, message="must be one JSON object, such as {}")


def _check_sleep(sleep: transition_pb2.Effect.Sleep, path: str) -> None:
    match sleep.WhichOneof("kind"):
        case "duration":
            check_duration(sleep.duration, f"{path}.duration")
        case "until":
            # Any time that can be written down will do: one in the past ends the sleep at once.
            try:
                sleep.until.ToJsonString()
            except ValueError as error:
                raise BadReply(path=f"{path}.until", message="is not a valid time") from error
        case None:
            raise BadReply(path=path, message="says neither how long nor until when; set one")


def check_duration(duration: Duration, path: str, *, positive: bool = False) -> None:
    """Refuse what is no length of time, or is 0 where that makes no sense."""
    if duration.seconds < 0 or duration.nanos < 0:
        raise BadReply(path=path, message="a duration can't be negative")
    if duration.seconds > _MAX_SECONDS or duration.nanos >= 1_000_000_000:
        raise BadReply(path=path, message="is not a valid google.protobuf.Duration")
    if positive and not duration.seconds and duration.nanos < 1_000:
        raise BadReply(path=path, message="must be longer than 0; leave it out to wait for ever")


def _check_model_call(
    state: RunState, request: llm_pb2.LlmRequest, path: str, seen_schemas: set[str]
) -> None:
    if not request.model and not state.graph.default_model:
        message = "names no model, and the graph has no default_model; name one"
        raise BadReply(path=f"{path}.model", message=message)
    if len(request.model) > MAX_MODEL_CHARACTERS:
        message = f"has {len(request.model)} characters, of at most {MAX_MODEL_CHARACTERS}"
        raise BadReply(path=f"{path}.model", message=message)
    _check_text(request.system_prompt, f"{path}.system_prompt")
    for index, each in enumerate(request.messages):
        refuse_violations(check_message(each, f"{path}.messages[{index}]"))
    _check_numbers(request, path)
    _check_schema(request.output_schema, f"{path}.output_schema", seen_schemas)
    _check_args(request.provider_options, f"{path}.provider_options")
    names: set[str] = set()
    for index, tool in enumerate(request.tools):
        at = f"{path}.tools[{index}]"
        check_name(tool.name, f"{at}.name", "a tool")
        if tool.name in RESERVED_TOOLS or tool.name in names:
            why = "is the server's own" if tool.name in RESERVED_TOOLS else "occurs twice"
            raise BadReply(path=f"{at}.name", message=f"the tool {tool.name!r} {why}; rename it")
        names.add(tool.name)
        _check_schema(tool.input_schema, f"{at}.input_schema", seen_schemas)


def _check_numbers(request: llm_pb2.LlmRequest, path: str) -> None:
    heat = request.temperature
    if request.HasField("temperature") and not (
        math.isfinite(heat) and 0 <= heat <= MAX_TEMPERATURE
    ):
        message = f"must be from 0 to {MAX_TEMPERATURE:g}"
        raise BadReply(path=f"{path}.temperature", message=message)
    if request.HasField("max_tokens") and request.max_tokens < 1:
        message = "must be at least 1; leave it out for the model's own limit"
        raise BadReply(path=f"{path}.max_tokens", message=message)


def _check_schema(text: str, path: str, seen: set[str]) -> None:
    if not text or text in seen:
        return
    seen.add(text)
    if len(seen) > MAX_SCHEMAS:
        message = (
            f"one reply has at most {MAX_SCHEMAS} different schemas; use the same, or another turn"
        )
        raise BadReply(path=path, message=message, code="FAN_OUT_LIMIT")
    try:
        schemas.compile_schema(text)
    except SchemaError as error:
        raise BadReply(path=path, message=f"is no JSON Schema that can be used: {error}") from error


def _check_options(options: transition_pb2.EffectOptions, path: str) -> None:
    if options.HasField("retry"):
        _check_retry(options.retry, f"{path}.retry")
    if options.HasField("limits"):
        _check_durations(options.limits, f"{path}.limits")
    if len(options.selector) > MAX_SELECTOR_ENTRIES:
        message = f"has {len(options.selector)} labels, of at most {MAX_SELECTOR_ENTRIES}"
        raise BadReply(path=f"{path}.selector", message=message)


def _check_retry(retry: policy_pb2.RetryPolicy, path: str) -> None:
    _check_durations(retry, path)
    if retry.HasField("max_tries") and not 1 <= retry.max_tries <= _MAX_TRIES:
        raise BadReply(path=f"{path}.max_tries", message=f"must be from 1 to {_MAX_TRIES}")
    if retry.HasField("factor") and not (math.isfinite(retry.factor) and retry.factor >= 1):
        raise BadReply(path=f"{path}.factor", message="must be at least 1")
    if retry.HasField("jitter") and not 0 <= retry.jitter <= 1:
        raise BadReply(path=f"{path}.jitter", message="must be from 0 to 1")


def _check_durations(message: Message, path: str) -> None:
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.name == "Duration":
            check_duration(value, f"{path}.{field.name}")


__all__ = ["check_await", "check_duration", "check_fan_out", "check_name"]
