from __future__ import annotations

from stepgraph.v1.run_pb2 import Run
from stepgraph_client.command.output import (
    plain,
    print_facts,
    print_json,
    print_json_line,
    print_table,
)


def test_a_message_has_the_schemas_names() -> None:
    assert plain(Run(run_id="r", last_sequence=3)) == {"run_id": "r", "last_sequence": 3}


def test_json_is_one_document_or_one_line(capsys) -> None:
    print_json({"a": "ü"})
    print_json_line({"a": [1]})
    assert capsys.readouterr().out == '{\n  "a": "ü"\n}\n{"a": [1]}\n'


def test_a_table_has_columns_that_line_up(capsys) -> None:
    print_table(("A", "BB"), [("xxx", "y\nz"), ("\x1b", "")], empty="nothing")
    assert capsys.readouterr().out == "A     BB\nxxx   y z\n\\x1b\n"


def test_an_empty_table_says_so_where_it_is_in_nobodys_way(capsys) -> None:
    print_table(("A",), [], empty="nothing")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "nothing\n")


def test_facts_leave_out_what_is_empty_and_indent_what_is_long(capsys) -> None:
    print_facts([("run", "r"), ("labels", ""), ("output", "a\nb")])
    assert capsys.readouterr().out == "run     r\noutput  a\n        b\n"
    print_facts([])
    assert capsys.readouterr().out == ""
