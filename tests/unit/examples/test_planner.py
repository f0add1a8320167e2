"""The rule planner's turns: which tools it calls, and what it says in the end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from examples.demo.folder import Folder, FolderError
from examples.demo.model_host import reply_to
from examples.demo.questions import AboutFile, Count, Definition, Mentions, Topic, wishes
from stepgraph.v1.conversation_pb2 import (
    ROLE_TOOL,
    ROLE_USER,
    ContentBlock,
    Message,
    TextBlock,
    ToolResultBlock,
)
from stepgraph.v1.llm_pb2 import LlmRequest, ToolDefinition

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "run.py").write_text(
        '"""The life of a run."""\n\n\ndef decide(state):\n    """Decide."""\n    return state\n\n\nx = 1\n'
    )
    (tmp_path / "engine.py").write_text("from core.run import decide\n\ndecide(1)\n")
    (tmp_path / "Makefile").write_text("# Builds everything.\nall:\n")
    return Folder(tmp_path)


class Dialogue:
    """Plays the part of the server: runs the calls, and asks again."""

    def __init__(self, folder: Folder, question: str) -> None:
        self.turns: list[list[str]] = []
        self._tools = {
            tool.__name__: tool for tool in (folder.list_files, folder.read_file, folder.search)
        }
        messages = [_user(question)]
        while True:
            tools = [ToolDefinition(name=name) for name in self._tools]
            response = reply_to(LlmRequest(messages=messages, tools=tools))
            calls = [
                each.tool_call for each in response.message.content if each.HasField("tool_call")
            ]
            if not calls:
                self.answer = response.message.content[0].text.text
                return
            for number, call in enumerate(calls):
                call.id = f"{len(messages)}-{number}"
            self.turns.append([call.name for call in calls])
            assert len(self.turns) < 9, "it asks for ever"
            results = [self._run(call.id, call.name, call.args) for call in calls]
            messages += [response.message, Message(role=ROLE_TOOL, content=results)]

    def _run(self, call_id: str, name: str, args: str) -> ContentBlock:
        try:
            text, is_error = self._tools[name](**json.loads(args)).model_dump_json(), False
        except FolderError as error:
            text, is_error = str(error), True
        block = ContentBlock(text=TextBlock(text=text))
        return ContentBlock(
            tool_result=ToolResultBlock(call_id=call_id, content=[block], is_error=is_error)
        )


def _user(text: str) -> Message:
    return Message(role=ROLE_USER, content=[ContentBlock(text=TextBlock(text=text))])


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Where is `decide` defined?", [Definition("decide")]),
        ("where is the class RunState declared", [Definition("RunState")]),
        (
            "Where is decide defined, and which files use it?",
            [Definition("decide"), Mentions("decide")],
        ),
        ("Which files call decide?", [Mentions("decide(")]),
        ("Who imports cel_expr_python?", [Mentions("cel_expr_python")]),
        ('Which files mention "lost grace"?', [Mentions("lost grace")]),
        ("What does core/run.py do?", [AboutFile("core/run.py")]),
        ("How many lines does Makefile have?", [AboutFile("Makefile")]),
        ("How many files are there?", [Count("*", ".")]),
        ("How many Python files are in core?", [Count("*.py", "core")]),
        ("How does recovery work?", [Topic(("recovery",))]),
        ("what is it?", []),
    ],
)
def test_questions_are_told_apart(question: str, expected: list[object]) -> None:
    assert wishes(question) == expected


def test_a_definition_is_searched_for_in_parallel_then_read_then_quoted(folder: Folder) -> None:
    dialogue = Dialogue(folder, "Where is decide defined, and which files call it?")
    assert dialogue.turns == [["search"] * 4, ["read_file"]]
    assert "decide is defined in core/run.py, line 4:" in dialogue.answer
    assert '    5 |     """Decide."""' in dialogue.answer
    assert "x = 1" not in dialogue.answer
    assert "1 line of engine.py, first in line 3: decide(1)" in dialogue.answer


def test_a_file_is_found_read_and_searched_for(folder: Folder) -> None:
    dialogue = Dialogue(folder, "What does run.py do?")
    assert dialogue.turns == [["list_files"], ["read_file", "search"]]
    assert "core/run.py has 9 lines" in dialogue.answer
    assert "The life of a run." in dialogue.answer
    assert "It defines decide." in dialogue.answer


def test_counting_looks_into_each_folder(folder: Folder) -> None:
    dialogue = Dialogue(folder, "How many files and lines are there?")
    assert dialogue.turns == [["list_files"], ["list_files"]]
    assert "The folder has 3 files with 14 lines" in dialogue.answer
    assert "- core: 1 file, 9 lines" in dialogue.answer


def test_anything_else_is_searched_by_its_words(folder: Folder) -> None:
    dialogue = Dialogue(folder, "Tell me about building everything")
    assert dialogue.turns[0] == ["search", "search"]
    assert "Makefile:1" in dialogue.answer
    assert "nothing about building" in dialogue.answer


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("Where is frobnicate defined?", "I found no definition of frobnicate"),
        ("Which files mention frobnicate?", "None of 3 files mentions frobnicate."),
        ("What does nosuch.py do?", "There is no file nosuch.py"),
        ("How many files are in nosuch?", "there is no nosuch in the folder"),
        ("How many files are in ../..?", "The folder has 3 files"),
        ("?", "I can say where something is defined"),
    ],
)
def test_what_is_not_there_is_said(folder: Folder, question: str, said: str) -> None:
    assert said in Dialogue(folder, question).answer


def test_without_its_tools_it_says_so() -> None:
    response = reply_to(LlmRequest(messages=[_user("Where is x_y defined?")]))
    assert "I was not offered the tool search." in response.message.content[0].text.text


def test_a_wish_for_a_change_becomes_a_call() -> None:
    tools = [ToolDefinition(name="propose_change")]
    wish = _user("Replace 'a' with 'b' in notes.md")
    (_, call) = reply_to(LlmRequest(messages=[wish], tools=tools)).message.content
    assert json.loads(call.tool_call.args) == {"file": "notes.md", "find": "a", "replace": "b"}
    (text,) = reply_to(LlmRequest(messages=[_user("Hm")], tools=tools)).message.content
    assert "I don't know which file" in text.text.text
