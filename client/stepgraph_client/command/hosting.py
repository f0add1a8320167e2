"""Hosting a provider's models from the command line: an executor that lives until it is told to stop.

Rules: a key is read from the environment, by the name of its variable, and never typed: what is typed can be read by everybody who lists
processes. The first SIGTERM or SIGINT ends the executor well, the second one at once. What can be known to be wrong is said before
anything is connected.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import signal
import sys
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from stepgraph_client._notices import last_words
from stepgraph_client.command import logs
from stepgraph_client.command.calling import CommandError, ExitCode
from stepgraph_client.command.parameters import pair, seconds
from stepgraph_client.command.settings import read_environment
from stepgraph_client.errors import Refused
from stepgraph_client.executor import Executor
from stepgraph_client.providers.endpoint import Endpoint
from stepgraph_client.providers.hosting import host, named
from stepgraph_client.task_errors import Failed
from stepgraph_client.wording import names_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from stepgraph_client.command.calling import Settings
    from stepgraph_client.providers.provider import Provider

F = TypeVar("F", bound="Callable[..., object]")

_log = logging.getLogger(__name__)

#: How long an endpoint may take to say which models it has. The answer is worth a warning, and no more.
CHECK_S: Final = 5.0
DEFAULT_MAX_IN_FLIGHT: Final = 32


class HostingError(CommandError):
    """What was typed, or what is installed, is not enough to host models."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """What a provider's commands read where nothing is typed.

    Attributes:
        package: The package that it needs, which is also the name of the extra.
        base_url: Where the provider's own API is.
        url_variable: The variable that says otherwise.
        key_variable: The variable that has the key.
        model_variable: The variable that names a model, where none is typed.
    """

    package: str
    base_url: str
    url_variable: str
    key_variable: str
    model_variable: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosting:
    """How models are hosted, as it was typed; see the options."""

    usual: Usual
    models: Mapping[str, str]
    base_url: str
    api_key_env: str
    executor_id: str
    labels: Mapping[str, str] = field(default_factory=dict)
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT
    connect_timeout_s: float = 10.0
    silence_timeout_s: float = 600.0
    drain_timeout_s: float = 30.0
    log_level: str = "info"
    as_json: bool = False

    def endpoint(self) -> Endpoint:
        """Return where the models are.

        Raises:
            HostingError: The URL is none, or there is no key where one is needed.
        """
        key = read_environment().get(self.api_key_env, "").strip()
        try:
            endpoint = Endpoint(
                base_url=self.base_url,
                api_key=key,
                key_name=self.api_key_env,
                connect_timeout_s=self.connect_timeout_s,
                silence_timeout_s=self.silence_timeout_s,
                max_connections=self.max_in_flight,
            )
        except ValueError as error:
            raise HostingError(str(error)) from error
        if not key and not endpoint.is_loopback:
            message = (
                f"there is no key for {endpoint.address}: put it into {self.api_key_env}, or name the variable that has it "
                "with --api-key-env. Only a server on this machine needs none."
            )
            raise HostingError(message)
        return endpoint


def hosting_options(usual: Usual) -> Callable[[F], F]:
    """Give a command the options of all that host models, and with them the argument `hosting`."""

    def decorate(function: F) -> F:
        @wraps(function)
        def with_hosting(*args: object, **kwargs: object) -> object:
            taken = {name: kwargs.pop(name) for name in _TAKEN}
            return function(*args, hosting=_hosting(usual, taken), **kwargs)

        command: Callable[..., object] = with_hosting
        for option in reversed(_options(usual)):
            command = option(command)
        return command  # type: ignore[return-value]  # the same function, for click

    return decorate


_TAKEN: Final = tuple(each.name for each in fields(Hosting) if each.name != "usual")


def _options(usual: Usual) -> list[Callable[[Callable[..., object]], Callable[..., object]]]:
    return [
        click.option(
            "--model",
            "models",
            type=model,
            multiple=True,
            metavar="[NAME=]MODEL",
            help="A model of the provider's, and the name that graphs use for it, if that is another. NAME may end in *. "
            f"Can be repeated.  [{usual.model_variable}]",
        ),
        click.option(
            "--base-url",
            metavar="URL",
            default="",
            help=f"Where the API is.  [{usual.url_variable}; default: {usual.base_url}]",
        ),
        click.option(
            "--api-key-env",
            metavar="VARIABLE",
            default=usual.key_variable,
            show_default=True,
            help="The variable of the environment that has the key.",
        ),
        click.option(
            "--max-in-flight",
            type=click.IntRange(1, 10_000),
            default=DEFAULT_MAX_IN_FLIGHT,
            show_default=True,
            metavar="N",
            help="How many calls at once; so many connections there are.",
        ),
        click.option(
            "--label",
            "labels",
            type=pair,
            multiple=True,
            metavar="NAME=VALUE",
            help="What selectors of runs and nodes can ask for. Can be repeated.",
        ),
        click.option(
            "--executor-id",
            default="",
            metavar="ID",
            help="An id that no other executor has.  [default: the host's name and chance]",
        ),
        _span("--connect-timeout", "10s", "How long it may take to connect to the API."),
        _span("--silence-timeout", "10m", "How long the API may send nothing within a reply."),
        _span("--drain-timeout", "30s", "How long calls may take to end once it is told to stop."),
        click.option(
            "--log-level", type=click.Choice(logs.LEVELS), default="info", show_default=True
        ),
        click.option("--json", "as_json", is_flag=True, help="Log JSON, one object a line."),
    ]


def _span(
    name: str, default: str, meaning: str
) -> Callable[[Callable[..., object]], Callable[..., object]]:
    return click.option(
        name,
        f"{name.removeprefix('--').replace('-', '_')}_s",
        type=seconds,
        default=default,
        show_default=True,
        metavar="DURATION",
        help=meaning,
    )


def model(text: str) -> tuple[str, str]:
    """Read `MODEL`, or `NAME=MODEL`."""
    name, equals, real_name = text.partition("=")
    if not name or (equals and not real_name):
        message = f"{text!r} is not MODEL or NAME=MODEL, such as gpt-5-mini or clever=gpt-5"
        raise click.BadParameter(message)
    if equals:
        return name, real_name
    (found,) = named([name]).items()
    return found


def _hosting(usual: Usual, typed: Mapping[str, Any]) -> Hosting:
    environment = read_environment()
    models = typed["models"] or tuple(map(model, environment.get(usual.model_variable, "").split()))
    if not models:
        message = f"name a model: --model NAME, or --model clever=NAME, or put it into {usual.model_variable}"
        raise click.UsageError(message)
    if len(dict(models)) != len(models):
        message = "--model: a name stands for one model, and one is given twice"
        raise click.UsageError(message)
    url = typed["base_url"] or environment.get(usual.url_variable) or usual.base_url
    found = {"models": dict(models), "base_url": url, "labels": dict(typed["labels"])}
    return Hosting(usual=usual, **{**typed, **found})


# ---- hosting -----------------------------------------------------------------------------------------


def host_until_told(
    settings: Settings, hosting: Hosting, connect: Callable[[Endpoint], Provider]
) -> None:
    """Host models until SIGTERM or SIGINT.

    Args:
        settings: The server, and the namespace.
        hosting: What was typed.
        connect: Makes the provider; an ImportError of it is said to be a missing package.

    Raises:
        CommandError: It can't begin, or the server won't have it.
        SystemExit: It was told a second time to stop, or before it had begun.
    """
    endpoint = hosting.endpoint()
    package = hosting.usual.package
    try:
        provider = connect(endpoint)
    except ModuleNotFoundError as error:
        message = (
            f"this needs the package {package!r}, which is not installed ({error}); "
            f"install it with `pip install 'stepgraph[{package}]'`"
        )
        raise HostingError(message) from error
    try:
        with logs.shown(sys.stderr, level=hosting.log_level, as_json=hosting.as_json):
            asyncio.run(_host(settings, hosting, endpoint, provider))
    except asyncio.CancelledError:
        raise SystemExit(ExitCode.INTERRUPTED) from None


async def _host(
    settings: Settings, hosting: Hosting, endpoint: Endpoint, provider: Provider
) -> None:
    executor = Executor(
        settings.server,
        executor_id=hosting.executor_id,
        namespace=settings.namespace,
        labels=hosting.labels,
        max_in_flight=hosting.max_in_flight,
        drain_timeout_s=hosting.drain_timeout_s,
    )
    try:
        host(provider, hosting.models, executor)
        _announce(hosting, endpoint)
        await _until_told(executor, check_models(provider, hosting.models, endpoint.address))
    except Refused as refused:
        raise CommandError(last_words(refused, settings.server, executor.executor_id)) from refused
    finally:
        await provider.close()


def _announce(hosting: Hosting, endpoint: Endpoint) -> None:
    names = names_text(
        name if real_name in {"", name} else f"{name} ({real_name})"
        for name, real_name in hosting.models.items()
    )
    _log.info(
        "hosts %s of %s; Ctrl-C stops it",
        names,
        endpoint.address,
        extra={"action": "executor.starting", "base_url": endpoint.address},
    )
    if endpoint.api_key and not endpoint.is_loopback and endpoint.base_url.startswith("http:"):
        _log.warning(
            "the key goes to %s unencrypted; use https",
            endpoint.address,
            extra={"action": "executor.insecure", "base_url": endpoint.address},
        )


async def check_models(provider: Provider, models: Mapping[str, str], address: str) -> None:
    """Warn of models that an endpoint does not list; it may know them nevertheless."""
    extra = {"action": "executor.model_unknown", "base_url": address}
    try:
        async with asyncio.timeout(CHECK_S):
            known = await provider.known_models()
    except TimeoutError:
        text = "%s has not said within %g s which models it has; they are hosted unseen"
        _log.warning(text, address, CHECK_S, extra=extra)
        return
    except Failed as failed:
        text = "it is not known which models there are: %s They are hosted unseen"
        _log.warning(text, failed.message, extra={**extra, "code": failed.code})
        return
    for real_name in models.values():
        if real_name and real_name not in known:
            near = difflib.get_close_matches(real_name, known, 1) or known[:5]
            has = f"; it has {names_text(near)}" if near else ", nor any other"
            text = "%s does not list a model %s%s. It is hosted nevertheless"
            _log.warning(text, address, real_name, has, extra={**extra, "model": real_name})


async def _until_told(executor: Executor, first: Awaitable[None]) -> None:
    """Do something first, and then run until the first signal; a second one, or one before it runs, ends it at once."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None, "coroutines run in tasks"
    stops_well = False

    def on_signal() -> None:
        nonlocal stops_well
        if stops_well:
            stops_well = False
            executor.stop()
        else:
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        await first
        stops_well = True
        await executor.run()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
