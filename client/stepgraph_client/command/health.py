"""`stepgraph health`: what a probe asks, for containers and scripts.

Rules: it asks once and waits for no longer than it was told, because whoever probes asks again by itself. Only the exit code is
needed to know; the line is for people.
"""

from __future__ import annotations

import asyncio

import click
import grpc
from grpc_health.v1 import health_pb2

from stepgraph_client.command.calling import CommandError, ServerAwayError, Settings
from stepgraph_client.command.parameters import span
from stepgraph_client.durations import to_duration

#: The names under which a server answers probes, and what each is called in a sentence.
LIVENESS = "liveness"
READINESS = "readiness"

_CHECK = "/grpc.health.v1.Health/Check"
_SERVING = health_pb2.HealthCheckResponse.SERVING


@click.command("health")
@click.option(
    "--live", is_flag=True, help="Ask whether it is alive, not whether it can take calls now."
)
@click.option(
    "--timeout",
    type=span,
    default="3s",
    show_default=True,
    metavar="DURATION",
    help="How long an answer may take.",
)
@click.pass_obj
def health_command(settings: Settings, *, live: bool, timeout: str) -> None:
    """Ask once whether the server is ready; the exit code is the answer.

    0 it is, 3 it is not (it stops, or its journal can't be written), 4 nobody answers. With --live a server that can't write is
    fine too: to start it again would not help.
    """
    name = LIVENESS if live else READINESS
    status = asyncio.run(
        _check(settings.server, name, to_duration(timeout).ToTimedelta().total_seconds())
    )
    if status != _SERVING:
        message = (
            f"{settings.server} is not ready: it is stopping, or can't write its journal; "
            "its log names the file and the cause"
        )
        raise CommandError(message)
    click.echo(f"{settings.server} is {'alive' if live else 'ready'}")


async def _check(server: str, name: str, timeout_s: float) -> int:
    """Return the status of a name.

    Raises:
        CommandError: Nobody answers in time, or who answers has no such name.
    """
    async with grpc.aio.insecure_channel(server) as channel:
        check: grpc.aio.UnaryUnaryMultiCallable[
            health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
        ]
        check = channel.unary_unary(
            _CHECK,
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try:
            response = await check(health_pb2.HealthCheckRequest(service=name), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise _refused(server, name, error) from error
        return response.status


def _refused(server: str, name: str, error: grpc.aio.AioRpcError) -> CommandError:
    if error.code() in {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND}:
        return CommandError(
            f"{server} answers, but has no health {name!r}: is it a stepgraph server?"
        )
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return ServerAwayError(f"{server} did not answer in time")
    return ServerAwayError(f"{server} can't be reached: {error.details() or error.code().name}")
