"""`stepgraph doctor`: a server, looked at from outside, as a client and an executor would see it.

Rules: nothing is changed that anybody would notice. To see whether anything can be written, one stored value of a few bytes is, always the same
one, so the hundredth visit writes nothing new; to see versions, limits and the clock, a session of an executor that can do nothing is
opened and closed. Each check stands by itself; one that can't be made because another failed is left out. A check that fails says what to do.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from typing import TYPE_CHECKING

import click
import grpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1.graph_pb2 import StateGraph
from stepgraph_client.command.calling import ExitCode, Settings
from stepgraph_client.command.output import Form, Output, Plain, output_option
from stepgraph_client.command.parameters import GRPC_SCHEMES
from stepgraph_client.command.tree import Verb
from stepgraph_client.errors import StepgraphError
from stepgraph_client.identity import client_version, new_instance_token
from stepgraph_client.wording import size_text, span_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from stepgraph_client.client import Client

#: For one check, if no --timeout says otherwise.
PATIENCE_S = 5.0
#: More than this between the clocks, beyond what the way may explain, makes deadlines and times of events look wrong.
MAX_SKEW_S = 2.0
#: A large request that stays below every limit of the server's; proxies often let less through.
LARGE_REQUEST_BYTES = 1024 * 1024
PROBE = "stepgraph doctor was here"
PROTOCOL_VERSION = 1

_SERVICES = ("GraphService", "RunService", "InterruptService", "ExecutorService", "ValueService")


class Verdict(StrEnum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


_STYLES = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check found, and what to do about it; nothing where all is well."""

    check: str
    verdict: Verdict
    text: str
    hint: str = ""


def _ok(check: str, text: str) -> Finding:
    return Finding(check=check, verdict=Verdict.OK, text=text)


def _warn(check: str, text: str, hint: str) -> Finding:
    return Finding(check=check, verdict=Verdict.WARN, text=text, hint=hint)


def _fail(check: str, text: str, hint: str) -> Finding:
    return Finding(check=check, verdict=Verdict.FAIL, text=text, hint=hint)


@click.command("doctor", cls=Verb)
@output_option(Form.TABLE, Form.JSON, Form.JSONL, Form.YAML)
@click.pass_obj
def doctor_command(settings: Settings, *, out: Output) -> None:
    """Look at a server from outside, and say what to do.

    Checks its name, connection, health, reflection, sessions, versions, limits, clock, sizes, journal and executors.
    Ends with 0 if nothing fails (warnings are fine), with 4 if the server can't be reached, else with 3.
    """
    findings = asyncio.run(_examined(settings, out))
    if not out.is_for_people and out.form is not Form.JSONL:
        out.document([_plain(each) for each in findings])
    failed = [each for each in findings if each.verdict is Verdict.FAIL]
    if not failed:
        return
    away = any(each.check in {"name", "reachable"} for each in failed)
    raise SystemExit(ExitCode.UNREACHABLE if away else ExitCode.REFUSED)


async def _examined(settings: Settings, out: Output) -> list[Finding]:
    findings: list[Finding] = []
    async for finding in examine(settings):
        findings.append(finding)
        if out.is_for_people:
            _print(finding, out)
        elif out.form is Form.JSONL:
            out.document(_plain(finding))
    return findings


def _plain(finding: Finding) -> Plain:
    facts: dict[str, Plain] = {
        "check": finding.check,
        "verdict": finding.verdict.value,
        "text": finding.text,
    }
    return facts | ({"hint": finding.hint} if finding.hint else {})


def _print(finding: Finding, out: Output) -> None:
    style = _STYLES[finding.verdict]
    out.prose(finding.text, style, indent=f"{finding.verdict.value:<5} {finding.check:<11} ")
    if finding.hint:
        out.prose(finding.hint, indent="      → ")


async def examine(settings: Settings) -> AsyncIterator[Finding]:
    """Yield what each check found, as it is found. It ends early where nothing more can be found."""
    patience_s = settings.timeout_s or PATIENCE_S
    name = await _name(settings.server, patience_s)
    yield name
    if name.verdict is Verdict.FAIL:
        return
    async with grpc.aio.insecure_channel(settings.server) as channel:
        reachable = await _reachable(channel, settings, patience_s)
        yield reachable
        if reachable.verdict is Verdict.FAIL:
            return
        for probe, wanted in (("liveness", "alive"), ("readiness", "ready")):
            yield await _health(channel, probe, wanted, patience_s)
        yield await _reflection(channel, patience_s)
        for finding in await _session(channel, settings, patience_s):
            yield finding
    async with settings.client() as client:
        for check, work in (("sizes", _sizes), ("journal", _journal), ("executors", _executors)):
            try:
                async with asyncio.timeout(patience_s):
                    finding = await work(client)
            except StepgraphError as error:
                finding = _fail(check, str(error), "The server's log says more.")
            except TimeoutError:
                finding = _fail(
                    check,
                    f"no answer within {span_text(patience_s)}",
                    "Is the server overloaded, or its disk? --timeout gives it more time.",
                )
            yield finding


# The way there ----------------------------------------------------------------------------------------------------


async def _name(server: str, patience_s: float) -> Finding:
    """Look the server's name up, as gRPC will."""
    if server.partition(":")[0] in GRPC_SCHEMES:
        return _ok("name", f"{server} is looked up by gRPC itself")
    host, _, port = server.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(patience_s):
            found = await loop.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as error:
        reason = getattr(error, "strerror", "") or "no answer in time"
        hint = "Is it spelt right? Does this machine use the DNS that knows it?"
        return _fail("name", f"{host} can't be looked up: {reason}", hint)
    addresses = sorted({str(each[4][0]) for each in found})
    shown = ", ".join(addresses[:3]) + (" and more" if len(addresses) > 3 else "")
    return _ok("name", f"{host} is {shown}" if [host] != addresses else f"{host} is an address")


async def _reachable(channel: grpc.aio.Channel, settings: Settings, patience_s: float) -> Finding:
    """Ask anything: whatever is answered, somebody speaks gRPC there. Not only connect, since that never says why it can't."""
    started = time.perf_counter()
    try:
        await _check(channel)(health_pb2.HealthCheckRequest(), timeout=patience_s)
    except grpc.aio.AioRpcError as error:
        if error.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
            hint = (
                "Is it running (`stepgraph serve`)? Is the port right, and open for this machine? "
                "Does something else than gRPC listen there, or TLS?"
            )
            text = f"nobody answers at {settings.server}: {error.details() or error.code().name}"
            return _fail("reachable", text, hint)
    took = span_text(time.perf_counter() - started)
    return _ok("reachable", f"{settings.server} answers; connected and asked in {took}")


def _check(
    channel: grpc.aio.Channel,
) -> grpc.aio.UnaryUnaryMultiCallable[
    health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
]:
    return channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )


async def _health(channel: grpc.aio.Channel, probe: str, wanted: str, patience_s: float) -> Finding:
    try:
        response = await _check(channel)(
            health_pb2.HealthCheckRequest(service=probe), timeout=patience_s
        )
    except grpc.aio.AioRpcError as error:
        hint = "Is it a stepgraph server? A proxy in front of it must let grpc.health.v1 through."
        return _fail(wanted, f"it does not say ({error.code().name})", hint)
    if response.status == health_pb2.HealthCheckResponse.SERVING:
        return _ok(wanted, "the server says so")
    hint = "It is stopping, or can't write its journal: its log names the file and the cause."
    return _fail(wanted, "the server says that it is not", hint)


async def _reflection(channel: grpc.aio.Channel, patience_s: float) -> Finding:
    """Ask which services there are: what grpcurl and others need, and no client of ours."""
    ask: grpc.aio.StreamStreamMultiCallable[
        reflection_pb2.ServerReflectionRequest, reflection_pb2.ServerReflectionResponse
    ]
    ask = channel.stream_stream(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    services: set[str] = set()
    try:
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        async for response in ask(iter([request]), timeout=patience_s):
            services |= {each.name for each in response.list_services_response.service}
    except grpc.aio.AioRpcError as error:
        hint = (
            "Tools such as grpcurl need the .proto files then; stepgraph's own clients don't mind."
        )
        return _warn("reflection", f"it is not offered ({error.code().name})", hint)
    missing = [name for name in _SERVICES if f"stepgraph.v1.{name}" not in services]
    if missing:
        hint = "The server is older than this command line, or another one; compare the versions."
        return _fail("reflection", f"it does not list {', '.join(missing)}", hint)
    return _ok("reflection", f"{len(services)} services are listed")


# A session --------------------------------------------------------------------------------------------------------


async def _session(
    channel: grpc.aio.Channel, settings: Settings, patience_s: float
) -> Sequence[Finding]:
    """Open the session of an executor that can do nothing: it tells versions, limits, and the server's time."""
    executor_id = f"doctor-{secrets.token_hex(4)}"
    connect: grpc.aio.StreamStreamMultiCallable[pb.ConnectRequest, pb.ConnectResponse]
    connect = channel.stream_stream(
        "/stepgraph.v1.ExecutorService/Connect",
        request_serializer=pb.ConnectRequest.SerializeToString,
        response_deserializer=pb.ConnectResponse.FromString,
    )
    hello = pb.Hello(
        protocol_version=PROTOCOL_VERSION,
        executor_id=executor_id,
        instance_token=new_instance_token(),
        namespace=settings.namespace,
        client_name=client_version(),
    )
    call = connect()
    try:
        async with asyncio.timeout(patience_s):
            before_s = _now_s()
            await call.write(pb.ConnectRequest(hello=hello))
            first = await call.read()
            after_s = _now_s()
            if not isinstance(first, pb.ConnectResponse):
                return [_fail("session", await _ended(call), _SESSION_HINT)]
            connect_s = await _connect_time_s(settings, executor_id)
            await call.write(pb.ConnectRequest(bye=pb.Bye(reason="examined")))
            await call.done_writing()
            while await call.read() is not grpc.aio.EOF:
                pass
    except grpc.aio.AioRpcError as error:
        return [_fail("session", error.details() or error.code().name, _SESSION_HINT)]
    except TimeoutError:
        return [_fail("session", f"no welcome within {span_text(patience_s)}", _SESSION_HINT)]
    except StepgraphError as error:
        return [_fail("session", str(error), _SESSION_HINT)]
    finally:
        call.cancel()
    findings = [
        _ok("session", "an executor can connect, and both directions of its stream work"),
        version_finding(first.welcome),
        _limits(first.welcome),
    ]
    if connect_s:
        findings.append(clock_finding(connect_s, before_s, after_s))
    return findings


_SESSION_HINT = "Executors can't connect like this. A proxy on the way must let streams in both directions stay open (HTTP/2, no buffering)."


async def _ended(call: grpc.aio.StreamStreamCall[pb.ConnectRequest, pb.ConnectResponse]) -> str:
    return await call.details() or (await call.code()).name


def _now_s() -> float:
    return time.time()  # noqa: TID251  (a clock is compared with another)


async def _connect_time_s(settings: Settings, executor_id: str) -> float:
    """Return when the server's clock says that the session began; 0 if it does not list it."""
    async with settings.client() as client:
        async for executor in client.executors():
            if executor.executor_id == executor_id:
                return executor.connect_time.seconds + executor.connect_time.nanos / 1e9
    return 0.0


def version_finding(welcome: pb.Welcome) -> Finding:
    """Compare the versions of both sides. Until 1.0 each 0.x may differ in what it says; from then on each major."""
    try:
        ours = metadata.version("stepgraph")
    except metadata.PackageNotFoundError:
        ours = "unknown"
    # As "stepgraph/0.1.0".
    theirs = welcome.server_version.rpartition("/")[2] or "unknown"
    text = f"server {theirs}, here {ours}, protocol {welcome.protocol_version}"
    if welcome.protocol_version != PROTOCOL_VERSION:
        hint = f"Executors here speak protocol {PROTOCOL_VERSION}: upgrade the older side."
        return _fail("version", text, hint)
    if "unknown" in {ours, theirs} or _line(ours) != _line(theirs):
        hint = "They may not know all of each other: upgrade the older side. The changelog says what changed."
        return _warn("version", text, hint)
    return _ok("version", text)


def _line(version: str) -> tuple[str, ...]:
    """Return the part of a version within which nothing breaks."""
    parts = version.split(".")
    return tuple(parts[:2] if parts[0] == "0" else parts[:1])


def _limits(welcome: pb.Welcome) -> Finding:
    text = (
        f"frames up to {size_text(welcome.max_frame_bytes)}, values up to "
        f"{size_text(welcome.max_inline_value_bytes)} inline and {size_text(welcome.max_stored_value_bytes)} stored"
    )
    return _ok("limits", text)


def clock_finding(server_s: float, before_s: float, after_s: float) -> Finding:
    """Compare the clocks: the server's time lies between two of ours, so half of the way is all that is not known."""
    unknown_s = (after_s - before_s) / 2
    skew_s = server_s - (before_s + after_s) / 2
    text = f"{abs(skew_s):.3f} s {'ahead' if skew_s > 0 else 'behind'} (±{unknown_s:.3f} s)"
    if abs(skew_s) - unknown_s > MAX_SKEW_S:
        hint = (
            "Times that are shown, and `--since 1h`, are off by that much. Let NTP set both clocks."
        )
        return _warn("clock", f"the server's is {text}", hint)
    return _ok("clock", f"the server's is {text}")


# What a client asks -----------------------------------------------------------------------------------------------


async def _sizes(client: Client) -> Finding:
    """Send a large request that stores nothing: proxies often let less through than the server."""
    graph = StateGraph(name="doctor", metadata={"filler": "x" * LARGE_REQUEST_BYTES})
    await client.validate_graph(graph)
    return _ok("sizes", f"a request of {size_text(LARGE_REQUEST_BYTES)} gets through")


async def _journal(client: Client) -> Finding:
    stored = await client.put_value(PROBE)
    if await client.read_value(stored.stored.digest) != PROBE.encode():
        hint = "The data file may be damaged: look at the server's log, and restore a backup."
        return _fail("journal", "what was written came back as something else", hint)
    return _ok("journal", "a small value was written and read again")


async def _executors(client: Client) -> Finding:
    found = [
        each async for each in client.executors() if not each.executor_id.startswith("doctor-")
    ]
    connected = [each for each in found if each.connected]
    room = sum(each.max_in_flight for each in connected)
    busy = sum(each.in_flight for each in connected)
    if not connected:
        hint = "Tasks wait until one connects: start one, or look at the log of yours."
        return _warn("executors", "none is connected", hint)
    text = f"{len(connected)} connected, {busy} of {room} slots taken"
    if busy >= room:
        hint = "New tasks wait for room: start more executors, or raise their max_in_flight."
        return _warn("executors", text, hint)
    if len(connected) < len(found):
        lost = len(found) - len(connected)
        return _warn(
            "executors", f"{text}, {lost} lost", "Look at the logs of those that are lost."
        )
    return _ok("executors", text)
