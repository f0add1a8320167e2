from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console
from ruamel.yaml import YAML

from stepgraph.v1.run_pb2 import Run
from stepgraph_client.command.calling import Settings
from stepgraph_client.command.output import (
    Column,
    Form,
    Output,
    as_yaml,
    console,
    plain,
    print_facts,
    print_json,
    print_json_line,
    print_table,
)
from stepgraph_client.command.settings import Color


def test_a_message_has_the_schemas_names() -> None:
    assert plain(Run(run_id="r", last_sequence=3)) == {"run_id": "r", "last_sequence": 3}


def test_json_is_one_document_or_one_line(capsys) -> None:
    print_json({"a": "ü"})
    print_json_line({"a": [1]})
    assert capsys.readouterr().out == '{\n  "a": "ü"\n}\n{"a": [1]}\n'


ROWS = [("run-1", "a long text that goes on", "ok"), ("run-22", "short", "bad")]
COLUMNS = (Column(name="RUN"), Column(name="WHAT", is_flexible=True), Column(name="STATUS"))


def screen(width: int) -> Console:
    """Return a terminal, whatever the environment of the tests says of theirs."""
    return Console(
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        no_color=True,
        soft_wrap=True,
        _environ={"TERM": "xterm"},
    )


def seen(to: Console) -> list[str]:
    assert isinstance(to.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;]*m", "", to.file.getvalue()).splitlines()


def test_a_table_has_columns_that_line_up(capsys) -> None:
    columns = (Column(name="A"), Column(name="BB"))
    print_table(columns, [("xxx", "y\nz"), ("\x1b", "")], empty="nothing", to=console())
    assert capsys.readouterr().out == "A     BB\nxxx   y z\n\\x1b\n"


def test_a_piped_table_is_never_cut(capsys) -> None:
    """Programs read it, however narrow the terminal is that it does not go to."""
    print_table(COLUMNS, [("r", "x" * 500, "ok")], empty="", to=console())
    assert "x" * 500 in capsys.readouterr().out


def test_on_a_terminal_what_may_be_shortened_is() -> None:
    to = screen(30)
    print_table(COLUMNS, ROWS, empty="", to=to)
    assert seen(to) == [
        "RUN     WHAT            STATUS",
        "run-1   a long text t…  ok",
        "run-22  short           bad",
    ]


def test_where_a_table_does_not_fit_each_row_is_a_block() -> None:
    """No id is cut, and none is broken."""
    to = screen(20)
    print_table(COLUMNS, ROWS[:1], empty="", to=to)
    assert seen(to) == [
        "run-1",
        "  what    a long",
        "          text that",
        "          goes on",
        "  status  ok",
    ]


def test_wide_characters_count_as_two() -> None:
    to = screen(40)
    print_table(COLUMNS, [("検査", "x", "ok")], empty="", to=to)
    assert seen(to)[1] == "検査  x     ok"


def test_an_empty_table_says_so_where_it_is_in_nobodys_way(capsys) -> None:
    print_table((Column(name="A"),), [], empty="nothing", to=console())
    out, err = capsys.readouterr()
    assert (out, err) == ("", "nothing\n")


def test_facts_leave_out_what_is_empty_and_indent_what_is_long(capsys) -> None:
    facts = [("run", "r"), ("labels", ""), ("output", "a\nb")]
    print_facts(facts, to=console())
    assert capsys.readouterr().out == "run     r\noutput  a\n        b\n"
    print_facts([], to=console())
    assert capsys.readouterr().out == ""


def test_prose_goes_on_below_where_it_began() -> None:
    to = screen(24)
    print_facts([("hint", "start one that can do it")], to=to)
    assert seen(to) == ["hint  start one that can", "      do it"]


def test_a_line_is_cut_only_on_a_terminal(monkeypatch, capsys) -> None:
    """What is fitted loses its end where it would be wrapped, and nowhere else."""
    monkeypatch.setenv("COLUMNS", "10")
    # A dumb one is taken to have 80.
    monkeypatch.setenv("TERM", "xterm")
    Output().fitted("x" * 20)
    assert capsys.readouterr().out == "x" * 20 + "\n"
    settings = Settings(color=Color.ALWAYS)
    Output(settings=settings).fitted("x" * 20)
    assert capsys.readouterr().out == "x" * 9 + "…\n"
    Output(settings=settings).prose("aa bb cc dd ee ff", indent="→ ")
    assert capsys.readouterr().out.splitlines() == ["→ aa bb cc", "  dd ee ff"]


@pytest.mark.parametrize(
    "content",
    [
        [{"a": 1, "b": [1, {"c": "x\ny"}]}, {"a": 2}],
        [],
        ["a: b", 3],
        {},
        [{"a": "l1\n  l2\n\nl3"}],
        [[1, 2], [3]],
        {"a": {"b": [True, "yes"]}},
        "x",
    ],
)
def test_yaml_reads_back_as_it_was(content) -> None:
    assert YAML(typ="safe", pure=True).load(as_yaml(content)) == content


def test_one_thing_is_printed_as_it_was_asked_for(capsys) -> None:
    run = Run(run_id="r")
    printed = {}
    for form in Form:
        assert Output(form).document(run, ids="r") is (form is not Form.TABLE)
        printed[form] = capsys.readouterr().out
    assert printed == {
        Form.TABLE: "",
        Form.JSON: '{\n  "run_id": "r"\n}\n',
        Form.JSONL: '{"run_id": "r"}\n',
        Form.YAML: "run_id: r\n",
        Form.IDS: "r\n",
    }


def test_a_list_is_printed_as_it_was_asked_for(capsys) -> None:
    runs = [Run(run_id="a"), Run(run_id="b")]
    printed = {}
    for form in Form:
        Output(form).documents(runs, ids=lambda run: run.run_id)
        printed[form] = capsys.readouterr().out
    assert json.loads(printed[Form.JSON]) == [{"run_id": "a"}, {"run_id": "b"}]
    assert printed[Form.JSONL] == '{"run_id": "a"}\n{"run_id": "b"}\n'
    assert printed[Form.YAML] == "- run_id: a\n- run_id: b\n"
    assert printed[Form.IDS] == "a\nb\n"


def test_json_and_another_form_exclude_each_other(run) -> None:
    ended = run("runs", "list", "--json", "--output", "yaml")
    assert ended.code == 2
    assert "--json and --output yaml exclude each other" in ended.err
    assert run("runs", "list", "--json", "-o", "json").json == []
    assert run("runs", "list", "-o", "xml").code == 2


def test_a_reader_who_has_gone_away_is_left_to_the_command() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    to = console()
    to.file = Gone()
    with pytest.raises(BrokenPipeError):
        to.print("x")


def test_certain_cells_have_a_colour_of_their_own() -> None:
    to = Console(file=io.StringIO(), force_terminal=True, width=40, _environ={"TERM": "xterm"})
    columns = (Column(name="RUN"), Column(name="STATUS", styles={"failed": "red"}))
    print_table(columns, [("a", "failed"), ("b", "running")], empty="", to=to)
    _, failed, running = to.file.getvalue().splitlines()
    assert "\x1b[31mfailed" in failed
    assert "\x1b" not in running
