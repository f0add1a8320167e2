"""A conversation, and how it is arranged for a model.

Rules: messages are only ever appended, and never parsed again: an entry is the serialized message with the little that
arranging needs. What is kept are bytes of our own, since a message that is part of a parsed frame keeps the whole frame
in memory.

Model providers refuse a history in which a call is not directly followed by its result. So what a model gets is
arranged: behind an assistant message stands a place for each of its calls, in call order, and whatever was or will be
recorded as the result of a call goes to its place. Places never move. Hence an arrangement only grows at its end, and a
result that comes late changes one place; nothing is arranged twice.

Ids of calls are the server's and unique in a run, but a conversation may begin with messages of another run or of a
client, where an id can occur again. A result belongs to the latest message that has an unanswered call of its id, there
to the first such call; the first result of a call stands, and further ones are not shown.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from stepgraph.v1 import conversation_pb2 as pb
from stepgraph_server.core.wire import join_repeated, length_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stepgraph.v1.graph_pb2 import ContextWindow

MESSAGES_FIELD: Final = 3
"""The number of `LlmRequest.messages`, for which pieces are kept ready."""

NOT_RUN: Final = "not run"
"""What a model reads as the result of a call that has none, unless something else was noted."""

# Of so many arranged messages in a row the bytes are kept as one piece. Fewer would make joining a long conversation
# slower, more would make it dearer to append, since those behind the last full piece are joined one by one.
_CHUNK: Final = 32


class CallRef(NamedTuple):
    """A call in an assistant message.

    Attributes:
        id: The server's id.
        name: The tool's name.
        provider_id: The provider's id; empty if it gave none.
    """

    id: str
    name: str
    provider_id: str


class Entry:
    """A message as it is kept. Never changed, so that conversations can share it.

    Attributes:
        data: The serialized message.
        role: A number of `Role`.
        calls: The calls of an assistant message.
        results: The call ids of the results in a tool message.
        provider_ids: The providers' ids that these results bear.
    """

    __slots__ = ("calls", "data", "is_one_result", "provider_ids", "results", "role")

    def __init__(self, message: pb.Message) -> None:
        self.data: bytes = message.SerializeToString()
        self.role: int = message.role
        self.calls: tuple[CallRef, ...] = ()
        self.results: tuple[str, ...] = ()
        self.provider_ids: tuple[str, ...] = ()
        self.is_one_result = False
        if self.role == pb.ROLE_ASSISTANT:
            calls: list[CallRef] = []
            for block in message.content:
                if block.HasField("tool_call"):
                    call = block.tool_call
                    calls.append(CallRef(call.id, call.name, call.provider_id))
            self.calls = tuple(calls)
        elif self.role == pb.ROLE_TOOL:
            content = message.content
            results: list[str] = []
            provider_ids: list[str] = []
            for block in content:
                if block.HasField("tool_result"):
                    result = block.tool_result
                    results.append(result.call_id)
                    provider_ids.append(result.provider_id)
            self.results = tuple(results)
            self.provider_ids = tuple(provider_ids)
            self.is_one_result = len(results) == len(content) == 1

    @property
    def size(self) -> int:
        """The bytes of the serialized message."""
        return len(self.data)

    def results_apart(self) -> Iterator[_Result]:
        """Yield each result as a tool message of its own."""
        if self.is_one_result:
            yield _Result(self.results[0], self.provider_ids[0], self.data)
            return
        message = pb.Message.FromString(self.data)
        blocks = [block for block in message.content if block.HasField("tool_result")]
        for call_id, provider_id, block in zip(
            self.results, self.provider_ids, blocks, strict=True
        ):
            alone = pb.Message(role=pb.ROLE_TOOL, content=[block], metadata=message.metadata)
            yield _Result(call_id, provider_id, alone.SerializeToString())


class Arranged:
    """What a model reads: a snapshot, which later appends don't change.

    Attributes:
        messages: The serialized messages, oldest first.
        parts: The same as the field `LlmRequest.messages`, in pieces: what contains it is made with a single join.
        size: The bytes of all parts.
    """

    __slots__ = ("messages", "parts", "size")

    def __init__(self, messages: list[bytes], parts: list[bytes], size: int) -> None:
        self.messages = messages
        self.parts = parts
        self.size = size

    @property
    def count(self) -> int:
        """How many messages there are."""
        return len(self.messages)

    def joined(self, field_number: int = MESSAGES_FIELD) -> bytes:
        """Return the messages as a repeated field."""
        if field_number == MESSAGES_FIELD:
            return b"".join(self.parts)
        return join_repeated(field_number, self.messages)


class _OpenCall(NamedTuple):
    """A call without a result: the entry that it stands in, its place, and itself."""

    entry_index: int
    place: int
    call: CallRef


class _Result(NamedTuple):
    """A result as a tool message of its own."""

    call_id: str
    provider_id: str
    data: bytes

    def of(self, call: CallRef) -> bytes:
        """Return the message, with the provider's id of the call. Written with it, it need not be parsed."""
        if self.provider_id == call.provider_id:
            return self.data
        message = pb.Message.FromString(self.data)
        message.content[0].tool_result.provider_id = call.provider_id
        return message.SerializeToString()


class Conversation:
    """The conversation of a run.

    Attributes:
        id: An id of the caller's choice; empty means the run's.
        metadata: Facts that the server keeps but does not read.
    """

    __slots__ = (
        "_chunks",
        "_denied",
        "_early_notes",
        "_empty",
        "_entries",
        "_group_starts",
        "_known",
        "_notes",
        "_open",
        "_places",
        "_prefixes",
        "_size",
        "_strays",
        "id",
        "metadata",
    )

    def __init__(
        self, conversation_id: str = "", metadata: Mapping[str, str] | None = None
    ) -> None:
        self.id = conversation_id
        self.metadata: dict[str, str] = dict(metadata or {})
        self._entries: list[Entry] = []
        # The arrangement. `_group_starts` are the places of all messages but results, so a message with calls and its
        # results form one group.
        self._places: list[bytes] = []
        self._prefixes: list[bytes] = []  # of each place, what precedes it in the field
        self._group_starts: list[int] = []
        self._size = 0  # of all places, with what precedes each in the field
        self._chunks: list[bytes | None] = []  # None: something in it has changed
        # Calls. Values of dictionaries are tuples, so that a copy of the dictionary is a copy of everything.
        self._known: set[str] = set()
        self._open: dict[str, tuple[_OpenCall, ...]] = {}
        self._empty: dict[
            int, CallRef
        ] = {}  # places without bytes: results that have to be made up
        self._notes: dict[int, str] = {}
        self._early_notes: dict[str, str] = {}
        self._denied: set[str] = set()
        self._strays: dict[str, tuple[_Result, ...]] = {}

    @classmethod
    def from_message(cls, message: pb.Conversation) -> Conversation:
        """Build a conversation from its message."""
        conversation = cls(message.id, message.metadata)
        for item in message.messages:
            conversation.append(item)
        return conversation

    def to_message(self) -> pb.Conversation:
        """Build the message, with all that was appended, as it was appended."""
        return pb.Conversation(id=self.id, messages=self.messages(), metadata=self.metadata)

    def copy(self) -> Conversation:
        """Return a conversation that can be appended to apart; the entries are shared."""
        other = Conversation(self.id, self.metadata)
        other._entries = self._entries.copy()
        other._places = self._places.copy()
        other._prefixes = self._prefixes.copy()
        other._group_starts = self._group_starts.copy()
        other._size = self._size
        other._chunks = self._chunks.copy()
        other._known = self._known.copy()
        other._open = self._open.copy()
        other._empty = self._empty.copy()
        other._notes = self._notes.copy()
        other._early_notes = self._early_notes.copy()
        other._denied = self._denied.copy()
        other._strays = self._strays.copy()
        return other

    def __len__(self) -> int:
        return len(self._entries)

    # ---- what was appended --------------------------------------------------------------

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    def messages(self, start: int = 0, stop: int | None = None) -> list[pb.Message]:
        """Parse the messages from `start` up to `stop`, for those who read a state."""
        return [pb.Message.FromString(entry.data) for entry in self._entries[start:stop]]

    def last_text(self) -> str:
        """Return the text of the last message; empty if there is no message, or no text in it."""
        if not self._entries:
            return ""
        return message_text(pb.Message.FromString(self._entries[-1].data))

    def is_open(self, call_id: str) -> bool:
        """Whether a call waits for a result of this id. One that was denied does not: nobody may perform it any more."""
        return call_id in self._open and call_id not in self._denied

    def open_call(self, call_id: str) -> CallRef | None:
        """Return the call that a result of this id would answer; None if no call waits for one."""
        waiting = self._open.get(call_id)
        return None if waiting is None else _next_to_answer(waiting).call

    # ---- appending -----------------------------------------------------------------------

    def append(self, message: pb.Message) -> None:
        """Append a message. It is serialized, not kept."""
        self.append_entry(Entry(message))

    def append_entry(self, entry: Entry) -> None:
        """Append an entry, which may be part of other conversations."""
        index = len(self._entries)
        self._entries.append(entry)
        if entry.role == pb.ROLE_TOOL:
            for result in entry.results_apart():
                self._add_result(result)
            return
        self._group_starts.append(len(self._places))
        self._add_place(entry.data)
        for call in entry.calls:
            self._add_call(call, index)

    def note(self, call_id: str, reason: str) -> None:
        """Say why a call has no result. The model reads it in place of one, until there is one.

        It may be said before the call is appended. Of an answered call nothing is noted.
        """
        waiting = self._open.get(call_id)
        if waiting is None:
            if call_id not in self._known:
                self._early_notes[call_id] = reason
            return
        _, place, call = _next_to_answer(waiting)
        self._notes[place] = reason
        self._empty[place] = call

    def deny(self, call_id: str, reason: str) -> None:
        """Say that a person refused a call, and why. It is noted, and not open any more."""
        self.note(call_id, reason)
        self._denied.add(call_id)

    def noted_results(self) -> list[pb.Message]:
        """Return a result for every call of which something was noted, for a conversation that takes over from this one."""
        calls = [each for waiting in self._open.values() for each in waiting]
        calls.sort(key=lambda each: each.place)
        noted = [each for each in calls if each.place in self._notes]
        return [_made_up(each.call, self._notes[each.place]) for each in noted]

    def _add_call(self, call: CallRef, entry_index: int) -> None:
        place = len(self._places)
        self._places.append(b"")
        self._prefixes.append(b"")
        self._known.add(call.id)
        strays = self._strays.pop(call.id, ())
        if strays:
            if len(strays) > 1:
                self._strays[call.id] = strays[1:]
            self._fill(place, strays[0].of(call))
            return
        self._open[call.id] = (*self._open.get(call.id, ()), _OpenCall(entry_index, place, call))
        self._empty[place] = call
        if self._early_notes and call.id in self._early_notes:
            self._notes[place] = self._early_notes.pop(call.id)

    def _add_result(self, result: _Result) -> None:
        call_id = result.call_id
        waiting = self._open.pop(call_id, None)
        if waiting is None:
            if call_id not in self._known:
                self._strays[call_id] = (*self._strays.get(call_id, ()), result)
            return
        answered = _next_to_answer(waiting)
        if len(waiting) > 1:
            self._open[call_id] = tuple([each for each in waiting if each is not answered])
        self._empty.pop(answered.place, None)
        self._notes.pop(answered.place, None)
        self._fill(answered.place, result.of(answered.call))

    def _add_place(self, data: bytes) -> None:
        prefix = length_prefix(MESSAGES_FIELD, len(data))
        self._places.append(data)
        self._prefixes.append(prefix)
        self._size += len(prefix) + len(data)

    def _fill(self, place: int, data: bytes) -> None:
        prefix = length_prefix(MESSAGES_FIELD, len(data))
        self._size += len(prefix) + len(data)
        self._size -= len(self._prefixes[place]) + len(self._places[place])
        self._places[place] = data
        self._prefixes[place] = prefix
        chunk = place // _CHUNK
        if chunk < len(self._chunks):
            self._chunks[chunk] = None

    # ---- arranging -----------------------------------------------------------------------

    def arrange(self, window: ContextWindow | None = None) -> Arranged:
        """Return what a model reads.

        Every assistant message with calls is followed by exactly their results, in call order; a call without one gets a
        result that says why. The window counts and measures arranged messages. A message with calls and its results
        are never parted: where first_messages or last_messages would, all of them stay; where max_bytes would, all of
        them go. The newest message (with its results) stays even if it is larger than max_bytes, since a model needs
        something to answer.
        """
        for place, call in self._empty.items():
            made_up = _made_up(call, self._notes.get(place, NOT_RUN))
            self._fill(place, made_up.SerializeToString())
        self._empty.clear()
        count = len(self._places)
        if window is None:
            return Arranged(self._places.copy(), self._parts(0, count), self._size)
        head_stop, tail_start = self._cut(window)
        if head_stop >= tail_start:
            return Arranged(self._places.copy(), self._parts(0, count), self._size)
        parts = self._parts(0, head_stop) + self._parts(tail_start, count)
        messages = self._places[:head_stop] + self._places[tail_start:]
        return Arranged(messages, parts, sum(map(len, parts)))

    def _parts(self, start: int, stop: int) -> list[bytes]:
        """Return the places from `start` to `stop` as a repeated field, in pieces."""
        parts: list[bytes] = []
        at = start
        while at < stop:
            if at % _CHUNK == 0 and at + _CHUNK <= stop:
                parts.append(self._chunk(at // _CHUNK))
                at += _CHUNK
                continue
            # Up to the next full chunk one by one.
            end = min(stop, at - at % _CHUNK + _CHUNK)
            single = [b""] * (2 * (end - at))
            single[::2] = self._prefixes[at:end]
            single[1::2] = self._places[at:end]
            parts += single
            at = end
        return parts

    def _chunk(self, index: int) -> bytes:
        while len(self._chunks) <= index:
            self._chunks.append(None)
        chunk = self._chunks[index]
        if chunk is None:
            places = self._places[index * _CHUNK : (index + 1) * _CHUNK]
            chunk = self._chunks[index] = join_repeated(MESSAGES_FIELD, places)
        return chunk

    def _cut(self, window: ContextWindow) -> tuple[int, int]:
        """Return where the beginning that stays ends, and where the end that stays starts."""
        count = len(self._places)
        head_stop = 0
        tail_start = 0
        if window.HasField("first_messages") or window.HasField("last_messages"):
            head_stop = self._group_stop(min(window.first_messages, count))
            tail_start = self._group_start(max(count - window.last_messages, 0))
            tail_start = max(tail_start, head_stop)
        if window.max_bytes:
            left = window.max_bytes - sum(map(len, self._places[:head_stop]))
            tail_start = self._fitting(tail_start, left)
        return head_stop, tail_start

    def _group_stop(self, place: int) -> int:
        """Return the end of the group that `place - 1` is part of; 0 for 0."""
        if place == 0:
            return 0
        following = bisect_right(self._group_starts, place - 1)
        return (
            self._group_starts[following]
            if following < len(self._group_starts)
            else len(self._places)
        )

    def _group_start(self, place: int) -> int:
        """Return the start of the group that `place` is part of; the end for the end."""
        if place >= len(self._places):
            return place
        return self._group_starts[bisect_right(self._group_starts, place) - 1]

    def _fitting(self, start: int, max_bytes: int) -> int:
        """Return the place, not before `start`, from which groups fit into `max_bytes`; the newest one always stays."""
        stop = len(self._places)
        used = 0
        for index in range(len(self._group_starts) - 1, -1, -1):
            group = self._group_starts[index]
            if group < start:
                break
            used += sum(map(len, self._places[group:stop]))
            if used > max_bytes and stop < len(self._places):
                break
            stop = group
        return stop


def result_message(
    call: CallRef, content: Iterable[pb.ContentBlock], *, is_error: bool
) -> pb.Message:
    """Build the tool message with the result of a call; written so, it is arranged without being parsed again."""
    result = pb.ToolResultBlock(
        call_id=call.id, content=content, is_error=is_error, provider_id=call.provider_id
    )
    return pb.Message(role=pb.ROLE_TOOL, content=[pb.ContentBlock(tool_result=result)])


def message_text(message: pb.Message) -> str:
    """Return the text of all text blocks, one directly after the other. Text that is stored by reference is left out."""
    return "".join([block.text.text for block in message.content if block.HasField("text")])


def _made_up(call: CallRef, reason: str) -> pb.Message:
    return result_message(call, [pb.ContentBlock(text=pb.TextBlock(text=reason))], is_error=True)


def _next_to_answer(waiting: tuple[_OpenCall, ...]) -> _OpenCall:
    """Return the first call of the latest message. Calls are in the order in which they were appended."""
    if len(waiting) == 1:
        return waiting[0]
    latest = waiting[-1].entry_index
    return next(each for each in waiting if each.entry_index == latest)
