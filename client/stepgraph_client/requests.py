"""What a run is started with and which runs are meant, as keywords and as requests.

Rules: only building. Keywords have the schema's names; what is not given stays absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from google.protobuf.timestamp_pb2 import Timestamp

from stepgraph.v1.conversation_pb2 import ROLE_USER, ContentBlock, Message, TextBlock
from stepgraph.v1.run_pb2 import RunInput, RunStatus
from stepgraph.v1.run_service_pb2 import ForkRunRequest, RunFilter, StartRunRequest
from stepgraph_client.durations import Span, to_duration
from stepgraph_client.graphs import GraphSource, graph_ref

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from stepgraph.v1.run_service_pb2 import ForkChange
    from stepgraph.v1.state_pb2 import GraphState
    from stepgraph.v1.value_pb2 import Value


class RunOptions(TypedDict, total=False):
    """What `start_run` takes, beside the graph; see `stepgraph.v1.StartRunRequest`.

    `input` becomes the variable `input` and the first last_result. `messages` are appended to the conversation; a text is
    a user's message. `request_id` is made by the client if it is not given; give it to make the start safe to repeat over
    the life of your own process.
    """

    input: object
    variables: Mapping[str, object]
    messages: Sequence[str | Message]
    run_id: str
    initial_state: GraphState
    continue_from: str
    labels: Mapping[str, str]
    selector: Mapping[str, str]
    max_iterations: int
    token_limit: int
    time_limit: Span
    delay: Span
    request_id: str


class RunFilterOptions(TypedDict, total=False):
    """Which runs; all that is given must match. `statuses` are names such as "running"."""

    statuses: Sequence[str]
    graph: str
    labels: Mapping[str, str]
    created_from: datetime
    created_before: datetime
    roots_only: bool


class ForkOptions(TypedDict, total=False):
    """What is different in a fork; see `stepgraph.v1.ForkRunRequest`."""

    sequence: int
    changes: Sequence[ForkChange]
    new_run_id: str
    graph: str
    max_iterations: int
    token_limit: int
    time_limit: Span
    labels: Mapping[str, str]
    request_id: str


def start_request(
    graph: GraphSource,
    options: RunOptions,
    value: Value | None,
    variables: Mapping[str, Value],
) -> StartRunRequest:
    """Return the request; `value` and `variables` are the converted ones, the options' own are not looked at."""
    request = StartRunRequest(
        graph=graph_ref(graph),
        run_id=options.get("run_id", ""),
        initial_state=options.get("initial_state"),
        input=RunInput(
            value=value,
            variables=variables,
            messages=[as_message(each) for each in options.get("messages", ())],
        ),
        labels=options.get("labels"),
        selector=options.get("selector"),
        max_iterations=options.get("max_iterations", 0),
        token_limit=options.get("token_limit", 0),
        request_id=options.get("request_id", ""),
    )
    # Set here and not above: an empty member of a oneof would push out the other one.
    if "continue_from" in options:
        request.continue_from = options["continue_from"]
    if "time_limit" in options:
        request.time_limit.CopyFrom(to_duration(options["time_limit"]))
    if "delay" in options:
        request.delay.CopyFrom(to_duration(options["delay"]))
    return request


def fork_request(run_id: str, options: ForkOptions) -> ForkRunRequest:
    """Return the request for a fork of a run."""
    request = ForkRunRequest(
        run_id=run_id,
        sequence=options.get("sequence", 0),
        changes=options.get("changes", ()),
        new_run_id=options.get("new_run_id", ""),
        graph=options.get("graph", ""),
        max_iterations=options.get("max_iterations", 0),
        token_limit=options.get("token_limit"),
        labels=options.get("labels"),
        request_id=options.get("request_id", ""),
    )
    if "time_limit" in options:
        request.time_limit.CopyFrom(to_duration(options["time_limit"]))
    return request


def run_filter(options: RunFilterOptions) -> RunFilter:
    """Return which runs are meant.

    Raises:
        ValueError: there is no such status.
    """
    built = RunFilter(
        statuses=[run_status(each) for each in options.get("statuses", ())],
        graph=options.get("graph", ""),
        labels=options.get("labels"),
        roots_only=options.get("roots_only", False),
    )
    if "created_from" in options:
        built.create_time_min.CopyFrom(_timestamp(options["created_from"]))
    if "created_before" in options:
        built.create_time_max.CopyFrom(_timestamp(options["created_before"]))
    return built


def run_status(name: str) -> RunStatus.ValueType:
    """Return the status of a name such as "running".

    Raises:
        ValueError: there is none.
    """
    found = _STATUSES.get(name.lower())
    if found is None:
        message = f"there is no status {name!r}; there are {', '.join(_STATUSES)}"
        raise ValueError(message)
    return found


def status_name(status: RunStatus.ValueType) -> str:
    """Return a status for people: "running". One that this version does not know is shown by its number."""
    names = {value: name for name, value in _STATUSES.items()}
    return names.get(status, f"status {int(status)}")


def as_message(message: str | Message) -> Message:
    """Return a message; a text is what a user says."""
    if isinstance(message, Message):
        return message
    return Message(role=ROLE_USER, content=[ContentBlock(text=TextBlock(text=message))])


_STATUSES = {
    name.removeprefix("RUN_STATUS_").lower(): value for name, value in RunStatus.items() if value
}


def _timestamp(point: datetime) -> Timestamp:
    if point.tzinfo is None:
        message = f"{point} has no time zone; use datetime(…, tzinfo=UTC)"
        raise ValueError(message)
    stamp = Timestamp()
    stamp.FromDatetime(point)
    return stamp
