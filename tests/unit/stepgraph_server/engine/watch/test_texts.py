"""What live attempts have shown so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2, task_pb2
from stepgraph_server.engine.watch import texts as texts_module
from stepgraph_server.engine.watch.texts import ShownTexts
from tests.contracts.storing import key
from tests.unit.stepgraph_server.engine.watch.watching import delta

if TYPE_CHECKING:
    import pytest

TASK = "1/n/t0"


def add(texts: ShownTexts, *events: event_pb2.TransientEvent) -> None:
    for event in events:
        texts.add(key(), event.task_id, event.attempt, event.SerializeToString())


def so_far(texts: ShownTexts) -> list[event_pb2.TransientEvent]:
    return [event_pb2.TransientEvent.FromString(event) for _, _, event in texts.of_run(key())]


def test_text_and_thoughts_are_put_together() -> None:
    """In order, each for itself; arguments and other progress are not text."""
    texts = ShownTexts()
    thinking = task_pb2.TaskProgress(thinking=task_pb2.TaskProgress.ThinkingDelta(text="hm"))
    args = task_pb2.TaskProgress(tool_args=task_pb2.TaskProgress.ToolArgsDelta(args="{}"))
    others = [
        event_pb2.TransientEvent(task_id=TASK, attempt=1, progress=progress)
        for progress in (thinking, args)
    ]
    add(texts, delta("a"), *others, delta("b"))
    (event,) = so_far(texts)
    assert (event.task_id, event.attempt) == (TASK, 1)
    assert (event.text_so_far.text, event.text_so_far.thinking) == ("ab", "hm")


def test_a_new_attempt_takes_the_place_of_the_old_one() -> None:
    """What comes late of the old one does not count."""
    texts = ShownTexts()
    add(texts, delta("a"), delta("b", attempt=2), delta("c"), delta("d", attempt=2))
    (event,) = so_far(texts)
    assert (event.attempt, event.text_so_far.text) == (2, "bd")


def test_an_attempt_that_ends_is_forgotten() -> None:
    """And whoever ends it hears whether it had shown anything."""
    texts = ShownTexts()
    add(texts, delta("a"), delta("b", task="2"))
    assert not texts.end(key("other"), TASK, 1)
    assert not texts.end(key(), TASK, 2)
    assert texts.end(key(), TASK, 1)
    assert not texts.end(key(), TASK, 1)
    assert [event.task_id for event in so_far(texts)] == ["2"]
    assert texts.end(key(), "2", 1)
    assert texts.runs() == []


def test_a_run_that_ends_is_forgotten() -> None:
    """Repeating it is harmless."""
    texts = ShownTexts()
    add(texts, delta("a"))
    assert texts.runs() == [key()]
    texts.end_run(key())
    texts.end_run(key())
    assert so_far(texts) == []


def test_a_text_that_is_too_long_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late watcher hears that something is missing; an end is still noted."""
    monkeypatch.setattr(texts_module, "MAX_TEXT_BYTES", 100)
    texts = ShownTexts()
    add(texts, *(delta("x" * 20) for _ in range(10)))
    (event,) = so_far(texts)
    assert event.HasField("progress_dropped")
    assert texts._runs[key()][TASK].pieces is None
    assert texts.end(key(), TASK, 1)
