"""Hosting a provider's models from the command line."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

import click
import pytest
from click.testing import CliRunner

from stepgraph_client.command import hosting as module
from stepgraph_client.command.calling import Settings
from stepgraph_client.command.hosting import (
    Hosting,
    HostingError,
    Usual,
    check_models,
    host_until_told,
    hosting_options,
    model,
)
from stepgraph_client.task_errors import Failed

USUAL = Usual(
    package="acme",
    base_url="https://acme.example/v1",
    url_variable="ACME_URL",
    key_variable="ACME_KEY",
    model_variable="ACME_MODEL",
)
#: Nobody listens there.
NOWHERE = Settings(server="127.0.0.1:1")


@hosting_options(USUAL)
def _show(*, hosting):
    click.echo("\n".join(f"{name}: {getattr(hosting, name)}" for name in Hosting.__slots__))


show = click.command(_show)


def typed(*words, **environment):
    result = CliRunner().invoke(show, words, env=environment)
    lines = (line.partition(": ") for line in result.stdout.splitlines())
    return result, {name: text for name, _, text in lines}


def test_little_need_be_typed():
    """A model is enough; all else has a default."""
    _, found = typed("--model", "m")
    assert found["models"] == "{'m': 'm'}"
    assert found["base_url"] == "https://acme.example/v1"
    assert found["api_key_env"] == "ACME_KEY"
    assert found["silence_timeout_s"] == "600.0"


def test_what_is_typed_wins_over_the_environment():
    """The URL and the models may stand in the environment, and what is typed wins."""
    environment = {"ACME_URL": "http://u", "ACME_MODEL": "a clever=b"}
    _, found = typed(**environment)
    assert (found["base_url"], found["models"]) == ("http://u", "{'a': 'a', 'clever': 'b'}")
    _, found = typed("--base-url", "http://v", "--model", "m=n", "--model", "p-*", **environment)
    assert (found["base_url"], found["models"]) == ("http://v", "{'m': 'n', 'p-*': ''}")


def test_everything_can_be_typed():
    """Labels, limits and lengths of time are read, each in its form."""
    _, found = typed(
        *("--model", "m", "--label", "a=b", "--max-in-flight", "3", "--executor-id", "e"),
        *("--connect-timeout", "1s", "--silence-timeout", "2m", "--drain-timeout", "500ms"),
        *("--api-key-env", "OTHER", "--log-level", "debug", "--json"),
    )
    assert (found["labels"], found["max_in_flight"]) == ("{'a': 'b'}", "3")
    assert (found["connect_timeout_s"], found["silence_timeout_s"]) == ("1.0", "120.0")
    assert (found["drain_timeout_s"], found["executor_id"]) == ("0.5", "e")
    assert (found["api_key_env"], found["log_level"], found["as_json"]) == (
        "OTHER",
        "debug",
        "True",
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name a model: --model NAME, or --model clever=NAME, or put it into ACME_MODEL"),
        (("--model", "=m"), "'=m' is not MODEL or NAME=MODEL"),
        (("--model", "a", "--model", "a=b"), "one is given twice"),
        (("--model", "a", "--max-in-flight", "0"), "0 is not in the range"),
        (("--model", "a", "--silence-timeout", "soon"), "'soon' is not a duration"),
    ],
    ids=range(5),
)
def test_what_is_typed_wrongly_says_what_is_right(words, message):
    """What can't be read is told with what to write."""
    result, _ = typed(*words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_a_model_may_have_another_name():
    """A model has its own name, another one, or stands for all that begin so."""
    assert [model("a"), model("a=b=c"), model("a*")] == [("a", "a"), ("a", "b=c"), ("a*", "")]


def hosting(**fields):
    given = {"models": {"m": "m"}, "base_url": "http://127.0.0.1:1/v1", "api_key_env": "ACME_KEY"}
    return Hosting(usual=USUAL, executor_id="e", **{**given, **fields})


def test_a_key_is_needed_but_on_this_machine(monkeypatch):
    """Without a key only a server on this machine is asked; the message says where the key goes."""
    monkeypatch.delenv("ACME_KEY", raising=False)
    assert hosting().endpoint().api_key == ""
    with pytest.raises(
        HostingError, match=r"no key for https://acme\.example: put it into ACME_KEY"
    ):
        hosting(base_url="https://acme.example").endpoint()
    monkeypatch.setenv("ACME_KEY", "sk-canary\n")
    endpoint = hosting(base_url="https://acme.example", max_in_flight=7).endpoint()
    assert (endpoint.api_key, endpoint.max_connections) == ("sk-canary", 7)


def test_a_bad_key_or_url_is_told_without_the_key(monkeypatch):
    """A key that no header takes, and what is no URL, end the command as typed wrongly."""
    monkeypatch.setenv("ACME_KEY", "sk-\ncanary")
    with pytest.raises(HostingError, match="the key in ACME_KEY") as caught:
        hosting().endpoint()
    assert "canary" not in str(caught.value)
    assert caught.value.exit_code == 2
    monkeypatch.delenv("ACME_KEY")
    with pytest.raises(HostingError, match="is not the URL of an API"):
        hosting(base_url="acme").endpoint()


class Provider:
    """A provider that only says which models it has."""

    def __init__(self, *known, failed=None, slow=False):
        self.known = known
        self.failed = failed
        self.slow = slow
        self.asked = asyncio.Event()
        self.closed = False

    async def known_models(self):
        self.asked.set()
        if self.slow:
            await asyncio.Event().wait()
        if self.failed:
            raise self.failed
        return self.known

    async def reply(self, model, request, ctx):
        raise AssertionError(model)

    async def close(self):
        self.closed = True


@pytest.mark.parametrize(
    ("provider", "warnings"),
    [
        (Provider("m"), []),
        (Provider("mm", "x"), ["u does not list a model m; it has mm. It is hosted nevertheless"]),
        (Provider(), ["u does not list a model m, nor any other. It is hosted nevertheless"]),
        (
            Provider(failed=Failed("MODEL_NOT_FOUND", "u answered 404.")),
            ["it is not known which models there are: u answered 404. They are hosted unseen"],
        ),
        (
            Provider(slow=True),
            ["u has not said within 0.01 s which models it has; they are hosted unseen"],
        ),
    ],
    ids=["known", "another", "none", "no list", "slow"],
)
async def test_a_model_that_is_not_listed_is_worth_a_warning(
    provider, warnings, caplog, monkeypatch
):
    """What the endpoint does not list is told, and hosted all the same."""
    monkeypatch.setattr(module, "CHECK_S", 0.01)
    await check_models(provider, {"m": "m", "all-*": ""}, "u")
    assert [record.getMessage() for record in caplog.records] == warnings


def test_a_missing_package_says_what_to_install():
    """Without the provider's package the message says how to install it."""

    def connect(_):
        raise ModuleNotFoundError(name="acme")

    with pytest.raises(HostingError, match=r"pip install 'stepgraph\[acme\]'"):
        host_until_told(NOWHERE, hosting(), connect)


class Heard(logging.Handler):
    """Says when something is logged."""

    def __init__(self, text):
        super().__init__()
        self.text = text
        self.event = asyncio.Event()

    def emit(self, record):
        if self.text in record.getMessage():
            self.event.set()


async def test_a_signal_ends_it_well():
    """Told to stop, it stops, and closes what it has opened."""
    provider = Provider("m")
    heard = Heard("can't reach the stepgraph server")
    logging.getLogger("stepgraph_client").addHandler(heard)
    try:
        async with asyncio.timeout(10):
            endpoint = hosting().endpoint()
            task = asyncio.create_task(module._host(NOWHERE, hosting(), endpoint, provider))
            await heard.event.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            await task
    finally:
        logging.getLogger("stepgraph_client").removeHandler(heard)
    assert provider.closed


async def test_a_signal_before_it_runs_ends_it_at_once():
    """Told to stop before it has begun, it ends at once, and closes what it has opened."""
    provider = Provider(slow=True)
    endpoint = hosting().endpoint()
    task = asyncio.create_task(module._host(NOWHERE, hosting(), endpoint, provider))
    async with asyncio.timeout(10):
        await provider.asked.wait()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(asyncio.CancelledError):
            await task
    assert provider.closed


def test_an_end_at_once_has_an_exit_code(monkeypatch):
    """A command that was ended at once says so by its exit code."""

    async def cancelled(*_):
        raise asyncio.CancelledError

    monkeypatch.setattr(module, "_host", cancelled)
    with pytest.raises(SystemExit) as caught:
        host_until_told(NOWHERE, hosting(), lambda _: Provider())
    assert caught.value.code == 130


async def test_a_key_over_plain_http_is_worth_a_warning(caplog, monkeypatch):
    """A key that leaves the machine unencrypted is told, without the key."""
    monkeypatch.setenv("ACME_KEY", "sk-canary")
    caplog.set_level(logging.INFO)
    given = hosting(base_url="http://10.0.0.1/v1", models={"a": "b", "c": "c"})
    module._announce(given, given.endpoint())
    assert [record.getMessage() for record in caplog.records] == [
        "hosts a (b), c of http://10.0.0.1/v1; Ctrl-C stops it",
        "the key goes to http://10.0.0.1/v1 unencrypted; use https",
    ]
