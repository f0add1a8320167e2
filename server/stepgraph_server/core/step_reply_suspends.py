"""Whether a step program can wait for what it wants to wait for.

Rules: as in `step_replies`. That no question of another run waits for a token, whoever delivers the reply has looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph_server.core import names, schemas
from stepgraph_server.core.bad_reply import BadReply, refuse_violations
from stepgraph_server.core.names import MAX_CORRELATION_CHARACTERS, MAX_KEPT_SIGNALS
from stepgraph_server.core.schema_shape import SchemaError
from stepgraph_server.core.step_reply_effects import check_duration
from stepgraph_server.core.suspending import check_reply

if TYPE_CHECKING:
    from stepgraph.v1 import interrupt_pb2, transition_pb2
    from stepgraph_server.core.state import RunState

MAX_PROMPT_BYTES: Final = 16 * 1024
MAX_TOKEN_CHARACTERS: Final = 256


def check_suspend(state: RunState, suspend: transition_pb2.Transition.Suspend, path: str) -> None:
    """Check a Suspend. Raises BadReply."""
    reason = suspend.reason
    at = f"{path}.reason"
    match reason.WhichOneof("kind"):
        case "human":
            _check_human(reason.human, f"{at}.human")
        case "external":
            _check_token(state, reason.external.token, f"{at}.external.token")
        case "signal":
            _check_signal(reason.signal, f"{at}.signal")
        case None:
            message = "is unset, or a variant that this server does not know; set human, external or signal"
            raise BadReply(path=at, message=message)
    if suspend.HasField("timeout"):
        check_duration(suspend.timeout, f"{path}.timeout", positive=True)
    elif suspend.HasField("default_answer"):
        message = "is never given without a timeout; set one, or leave it out"
        raise BadReply(path=f"{path}.default_answer", message=message)
    if suspend.HasField("default_answer"):
        problem = check_reply(
            reason.human.json_schema, suspend.default_answer, f"{path}.default_answer"
        )
        refuse_violations([problem] if problem is not None else [])


def _check_human(human: interrupt_pb2.SuspendReason.Human, path: str) -> None:
    size = len(human.prompt.encode())
    if size > MAX_PROMPT_BYTES:
        message = f"has {size} bytes, of at most {MAX_PROMPT_BYTES}"
        raise BadReply(path=f"{path}.prompt", message=message, code="PAYLOAD_TOO_LARGE")
    if not human.json_schema:
        return
    try:
        schemas.compile_schema(human.json_schema)
    except SchemaError as error:
        message = f"is no JSON Schema that can be used: {error}"
        raise BadReply(path=f"{path}.json_schema", message=message) from error


def _check_signal(signal: interrupt_pb2.SuspendReason.Signal, path: str) -> None:
    if not names.is_id(signal.name):
        message = f"must match {names.ID_PATTERN}"
        raise BadReply(path=f"{path}.name", message=message)
    if signal.count > MAX_KEPT_SIGNALS:
        message = f"is more than {MAX_KEPT_SIGNALS}, which is as many as a run keeps"
        raise BadReply(path=f"{path}.count", message=message)
    if len(signal.correlation) > MAX_CORRELATION_CHARACTERS:
        message = f"must have at most {MAX_CORRELATION_CHARACTERS} characters"
        raise BadReply(path=f"{path}.correlation", message=message)


def _check_token(state: RunState, token: str, path: str) -> None:
    if not token or len(token) > MAX_TOKEN_CHARACTERS:
        message = f"must have 1 to {MAX_TOKEN_CHARACTERS} characters"
        raise BadReply(path=path, message=message)
    refuse_taken(taken=token in state.external_tokens, path=path)


def refuse_taken(*, taken: bool, path: str = "transition.suspend.reason.external.token") -> None:
    """Refuse a token for which another question waits, without saying it: it is a secret of whoever answers."""
    if taken:
        message = "another question of this namespace waits for the same token; make one that is used once"
        raise BadReply(path=path, message=message, code="TOKEN_TAKEN")


__all__ = ["check_suspend", "refuse_taken"]
