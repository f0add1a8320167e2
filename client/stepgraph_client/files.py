"""Graphs in files: YAML and JSON to a `StateGraph`, and the way back from the server's problems to a line of the file.

The form is the schema's JSON form, in snake_case or camelCase, with these shorthands:

    name: react
    default_model: claude
    start: think                      # entry_point
    end: [done]                       # terminal_nodes
    time_limit: 1h30m                 # durations: 30s, 1.5h, 250ms
    reducers: {notes: append}         # enums without their prefix, in any case
    nodes:
      - id: think
        llm_infer:                    # straight in the node; `action: {llm_infer: …}` works as well
          include_tool_definitions: true
          output_schema: {type: object}   # fields that hold JSON text may be written as YAML
        retry: {max_tries: 5}
        output: answer                # output_variable
      - id: act
        run_requested_tools: {filter: [search, "read_*"]}   # a ToolFilter as the list that it allows
      - {id: done, assign: {}}
    edges:
      - {from: think, to: act, when: has_tool_calls}        # source, target, condition
      - {from: act, to: think}
      - {from: think, to: done, when: {expression: "size(vars) > 0"}}

A message with one field may be written as that field's value (`{paradigm_equals: careful}`), and so may the messages of
`MAIN_FIELDS`; a variant without fields is its name alone. `client/GRAPH_FILES.md` lists all short forms.

Rules: a file never builds anything but a `StateGraph`; everything that is wrong is reported at once, with its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepgraph.v1.graph_pb2 import StateGraph
from stepgraph_client.documents import START, DocumentError, Mark, read_document
from stepgraph_client.errors import StepgraphError
from stepgraph_client.shapes import fill

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: How many problems of a file an error lists; the rest are counted.
MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in a file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        """Return it as editors take it."""
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProblem:
    """What is wrong with a file. `path` is the place in the graph; empty for the file as a whole."""

    place: Place
    path: str
    message: str

    def __str__(self) -> str:
        """Return the place, the path and the trouble as one line."""
        where = f"{self.path}: " if self.path else ""
        return f"{self.place}: {where}{self.message}"


class GraphFileError(StepgraphError):
    """A file is not a graph. Expected; `problems` has all that is wrong, in the order of the file."""

    def __init__(self, problems: Sequence[FileProblem]) -> None:
        shown = [str(each) for each in problems[:MAX_PROBLEMS]]
        if len(problems) > MAX_PROBLEMS:
            shown.append(f"… and {len(problems) - MAX_PROBLEMS} more")
        super().__init__("\n".join(shown))
        self.problems = tuple(problems)


class SourceMap:
    """Where each part of a graph stands in its file."""

    def __init__(self, file: str, places: Mapping[str, Mark], first_node: str = "") -> None:
        self._file = file
        self._places = dict(places)
        self._first_node = first_node

    @property
    def file(self) -> str:
        """The file's name, as it was given."""
        return self._file

    @property
    def first_node(self) -> str:
        """The id of the node that stands first; empty if there is none."""
        return self._first_node

    def locate(self, path: str) -> Place:
        """Return the place of a path such as `nodes[2].action.llm_infer.model`.

        For something that is not written in the file, such as a field that is missing, it is the nearest part around it.
        """
        while path and path not in self._places:
            path = _parent(path)
        mark = self._places.get(path, START)
        return Place(file=self._file, line=mark.line, column=mark.column)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFile:
    """A graph that was read, and where its parts stand."""

    graph: StateGraph
    source: SourceMap


def load_graph(path: Path | str) -> GraphFile:
    """Read a graph from a YAML or JSON file.

    Raises:
        GraphFileError: the file can't be read or is not a graph; all problems at once.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"it is not UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise _unreadable(path, f"it can't be read: {error.strerror}") from error
    return parse_graph(text, file=str(path), is_json=path.suffix.lower() == ".json")


def parse_graph(text: str, *, file: str = "graph", is_json: bool = False) -> GraphFile:
    """Read a graph from text. `file` is only for messages.

    Raises:
        GraphFileError: it is not a graph; all problems at once.
    """
    try:
        document = read_document(text, is_json=is_json)
    except DocumentError as error:
        place = Place(file=file, line=error.mark.line, column=error.mark.column)
        raise GraphFileError([FileProblem(place=place, path="", message=error.message)]) from error
    graph = StateGraph()
    shape = fill(graph, document)
    if shape.troubles:
        ordered = sorted(shape.troubles, key=lambda each: (each.mark.line, each.mark.column))
        raise GraphFileError(
            [
                FileProblem(
                    place=Place(file=file, line=each.mark.line, column=each.mark.column),
                    path=each.path,
                    message=each.message,
                )
                for each in ordered
            ]
        )
    first_node = graph.nodes[0].id if graph.nodes else ""
    return GraphFile(graph=graph, source=SourceMap(file, shape.places, first_node))


def _unreadable(path: Path, message: str) -> GraphFileError:
    place = Place(file=str(path), line=1, column=1)
    return GraphFileError([FileProblem(place=place, path="", message=message)])


def _parent(path: str) -> str:
    """Return the path of what a part is in: `a.b[2]` gives `a.b`, `a.b` gives `a`, `a` gives nothing.

    A key of a map may have dots of its own, so its whole bracket goes at once.
    """
    if path.endswith('"]') and '["' in path:
        return path[: path.rindex('["')]
    return path[: max(path.rfind("."), path.rfind("["), 0)]
