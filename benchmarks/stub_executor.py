"""An executor that costs as little as one can: `python -m benchmarks.stub_executor --server 127.0.0.1:7233`.

It speaks the protocol by hand. One frame of tasks is answered with one frame of results; results are bytes that were
serialized once; which turn of a run a model call belongs to is read from the task's id, not from its conversation. So what
a benchmark measures is the server, and not this.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import TYPE_CHECKING

import grpc

from benchmarks.react_work import ANSWER, ANSWERING_SUPERSTEP, CALL, MODEL, TOOL, TOOL_OUTPUT
from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1.task_pb2 import TaskResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from stepgraph.v1.task_pb2 import Task

#: As large as it may be: the server is never kept waiting for room.
MAX_IN_FLIGHT = 100_000
_OPTIONS = (("grpc.max_receive_message_length", 64 * 1024 * 1024),)


def _field(number: int, content: bytes) -> bytes:
    """Return a field of bytes, a text or a message, as protobuf writes it."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _result(result: TaskResult) -> bytes:
    """Return the `succeeded` field of an AttemptOutcome."""
    return _field(pb.AttemptOutcome.SUCCEEDED_FIELD_NUMBER, result.SerializeToString())


_CALL = _result(TaskResult(llm=CALL))
_ANSWER = _result(TaskResult(llm=ANSWER))
_TOOL = _result(TaskResult(tool=TOOL_OUTPUT))


def _outcome(task: Task) -> bytes:
    """Return an AttemptOutcome. A task's id is `<run>/<superstep>/<node>/…`."""
    if task.input.HasField("tool"):
        result = _TOOL
    else:
        superstep = int(task.task_id.split("/", 2)[1])
        result = _ANSWER if superstep >= ANSWERING_SUPERSTEP else _CALL
    return _field(1, task.task_id.encode()) + b"\x10" + _varint(task.attempt) + result


def results_frame(tasks: Iterable[Task]) -> bytes:
    """Return the ConnectRequest that answers tasks."""
    outcomes = b"".join(_field(1, _outcome(task)) for task in tasks)
    return _field(pb.ConnectRequest.RESULTS_FIELD_NUMBER, outcomes)


def hello(executor_id: str) -> bytes:
    """Return the first frame."""
    greeting = pb.Hello(
        protocol_version=1,
        executor_id=executor_id,
        instance_token=os.urandom(32),
        max_in_flight=MAX_IN_FLIGHT,
        client_name="benchmark-stub",
        capabilities=[
            pb.Capability(llm=pb.Capability.Llm(models=[MODEL])),
            pb.Capability(tool=pb.Capability.Tool(definition=TOOL)),
        ],
    )
    return pb.ConnectRequest(hello=greeting).SerializeToString()


async def serve(server: str, executor_id: str) -> None:
    """Answer tasks until the server ends the stream."""
    async with grpc.aio.insecure_channel(server, options=_OPTIONS) as channel:
        # Without a serializer it takes frames as bytes.
        connect: grpc.aio.StreamStreamMultiCallable[bytes, pb.ConnectResponse] = (
            channel.stream_stream(
                "/stepgraph.v1.ExecutorService/Connect",
                response_deserializer=pb.ConnectResponse.FromString,
            )
        )
        up: asyncio.Queue[bytes] = asyncio.Queue()
        up.put_nowait(hello(executor_id))

        async def frames() -> AsyncIterator[bytes]:
            while True:
                yield await up.get()

        async for frame in connect(frames()):
            kind = frame.WhichOneof("frame")
            if kind == "tasks":
                up.put_nowait(results_frame(frame.tasks.tasks))
            elif kind == "ping":
                pong = pb.ConnectRequest(pong=pb.Pong(nonce=frame.ping.nonce))
                up.put_nowait(pong.SerializeToString())
            elif kind == "reject":
                print(f"rejected: {frame.reject.reason}: {frame.reject.message}", flush=True)
            elif kind == "welcome":
                print("ready", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="127.0.0.1:7233")
    parser.add_argument("--executor-id", default="stub")
    given = parser.parse_args()
    asyncio.run(serve(given.server, given.executor_id))


if __name__ == "__main__":
    main()
