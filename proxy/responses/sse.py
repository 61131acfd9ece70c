"""Server-sent events, pure: bytes in any chunking to whole events, each with its bytes unchanged.

The format is that of the WHATWG HTML standard, section 9.2 "Server-sent events".

Theory of operation ------------------- An event ends at a blank line; line ends may be LF, CRLF or
CR, mixed (section 9.2.5). Nearly every upstream uses LF, so a chunk without CR takes the short
path: cut after the last two line feeds. With a CR in it the end is searched for by a pattern; a CR
that is the last byte so far may be half of a CRLF and has to wait.

What came together stays together, as a batch: its bytes, the data of its events, and the few events
that turnlane looks into. One pattern finds them all when every event has one line of data that
begins with its type, as in every stream seen. Counting the blank lines and the lines of data shows
that it missed nothing; if the counts differ, each event is read by itself, as the standard says.

The type of an event is the `type` member of its data, as for Codex, and not its `event` field. It
is the first member in every stream seen, so a pattern at the start of the data finds it; anything
else is decoded, shallowly.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from proxy.errors import UpstreamCut
from proxy.responses.rawjson import UNREADABLE, members

# `\r(?!\n|\Z)`: a CR alone ends a line, but not one whose LF, if it has one, is still to come.
_BLANK_LINE: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n|\Z)){2}")
_ANY_BLANK_LINE: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
"""The same in bytes that are known to end with a blank line: a last CR is a whole line end."""
# A line of data with a leading type, between a line end and a blank line. Its own line end is
# consumed and the blank line's is not, so that the next match can begin there.
_ORDINARY: Final = re.compile(rb'\ndata: ?(\{"type": ?"([^"\\\n]*)"[^\n]*)\n(?=\n)')
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_LEADING_TYPE: Final = re.compile(rb'\s*\{\s*"type"\s*:\s*"([^"\\]*)"')
_BOM: Final = b"\xef\xbb\xbf"
_LOOK_BACK: Final = 2
"""Bytes before a chunk that a blank line may begin with: a line end, and a CR that had to wait."""

EVENT_BYTES: Final = 64 * 2**20
"""The longest event, so that one of an upstream cannot fill the memory; Codex takes 16 MiB."""

# As Codex reads them: `response.done` and `response.cancelled` do not end a response.
TERMINAL_TYPES: Final = frozenset(
    {"response.completed", "response.failed", "response.incomplete", "error"}
)
RATE_LIMITS: Final = "codex.rate_limits"
NOTED_TYPES: Final = TERMINAL_TYPES | {
    "response.created",
    "response.output_item.done",
    RATE_LIMITS,
}
_NOTED: Final = frozenset(name.encode() for name in NOTED_TYPES)


class Event(NamedTuple):
    """One event: `raw` as it came, blank line included; `data` is None if it has only comments or
    other fields."""

    raw: bytes
    data: bytes | None
    type: str

    @property
    def terminal(self) -> bool:
        return self.type in TERMINAL_TYPES


class Noted(NamedTuple):
    """An event that a turn looks into."""

    type: str
    data: bytes


class Batch(NamedTuple):
    """Events that came together: their bytes as they came, and the data of each that has any.

    `final` is the terminal event. It is not part of `raw`, `data` or `noted`, and what follows it
    is dropped.
    """

    raw: bytes
    data: Sequence[bytes] = ()
    noted: Sequence[Noted] = ()
    final: Event | None = None


class _Typed(msgspec.Struct):
    type: str = ""


_typed: Final = msgspec.json.Decoder(_Typed)


class Splitter:
    """Cut a stream after its last complete event; hold the rest until more arrives."""

    def __init__(self, limit_bytes: int = EVENT_BYTES) -> None:
        self._limit = limit_bytes
        self._rest: list[bytes] = []
        self._size = 0
        self._tail = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes of the events that are now complete. Raises UpstreamCut for an event
        that is longer than the limit."""
        if self._rest and not _has_blank_line(seen := self._tail + chunk):
            return self._keep(chunk, seen)
        text = b"".join((*self._rest, chunk)) if self._rest else chunk
        end = _last_end(text)
        if end == len(text):
            if self._rest:
                self._rest, self._size, self._tail = [], 0, b""
            return text
        rest = text[end:]
        self._rest = [rest]
        self._size, self._tail = len(rest), rest[-_LOOK_BACK:]
        return text[:end]

    def _keep(self, chunk: bytes, seen: bytes) -> bytes:
        """Hold a chunk in which no event ends. The chunks of a long event are searched one by one
        and joined once, at its end, so that its cost does not grow with the square of its
        length."""
        self._rest.append(chunk)
        self._tail = seen[-_LOOK_BACK:]
        self._size += len(chunk)
        if self._size > self._limit:
            raise UpstreamCut(f"an event of more than {self._limit} bytes")
        return b""

    def close(self) -> bytes:
        """Return the last event of a stream that ended without its blank line, completed with one.

        The standard discards such an event (section 9.2.6), and so would a client. It is kept if
        its data is whole JSON, since an upstream may close without the blank line; half an event
        stays discarded, whatever type its beginning names.
        """
        text = b"".join(self._rest) + b"\n\n"
        event = _event(text)
        self._rest, self._tail = [], b""
        return text if event.type and _is_whole(event.data) else b""


def batch_of(text: bytes) -> Batch:
    """Return the events in what a splitter returned, up to the terminal one."""
    if not text:
        return Batch(b"")
    lines = b"\n" + text  # so that the first line, too, follows a line end
    found = _ORDINARY.findall(lines)
    # Each event must have one ordinary line and each blank line must belong to one; a second line
    # of data, a comment alone or an odd line feed breaks one of the two equations.
    if not len(found) == text.count(b"\n\n") == lines.count(b"\ndata:") or b"\r" in text:
        return _batch_of_any(events_of(text))
    data = [data for data, _ in found]
    if _NOTED.isdisjoint([kind for _, kind in found]):
        return Batch(text, data)
    noted = [Noted(kind.decode(), data) for data, kind in found if kind in _NOTED]
    ends = sum(note.type in TERMINAL_TYPES for note in noted)
    if not ends:
        return Batch(text, data, noted)
    if ends > 1 or found[-1][1].decode("utf-8", "replace") not in TERMINAL_TYPES:
        return _batch_of_any(events_of(text))  # something follows the terminal event
    # The terminal event is the last: it begins after the blank line before it.
    start = text.rfind(b"\n\n", 0, -2) + 2 if len(data) > 1 else 0
    final = Event(text[start:], data.pop(), noted.pop().type)
    return Batch(text[:start], data, noted, final)


def events_of(text: bytes) -> list[Event]:
    """Return the events in what a splitter returned, each read by itself."""
    if b"\r" not in text:
        return [_event(block + b"\n\n") for block in text.split(b"\n\n")[:-1]]
    ends = [match.end() for match in _ANY_BLANK_LINE.finditer(text)]
    return [_event(text[start:end]) for start, end in pairwise((0, *ends))]


def _batch_of_any(events: list[Event]) -> Batch:
    raw: list[bytes] = []
    data: list[bytes] = []
    noted: list[Noted] = []
    for event in events:
        if event.terminal:
            return Batch(b"".join(raw), data, noted, event)
        raw.append(event.raw)
        if event.data is not None:
            data.append(event.data)
            if event.type in NOTED_TYPES:
                noted.append(Noted(event.type, event.data))
    return Batch(b"".join(raw), data, noted)


def _has_blank_line(text: bytes) -> bool:
    return _BLANK_LINE.search(text) is not None if b"\r" in text else b"\n\n" in text


def _last_end(text: bytes) -> int:
    """Return where the last whole event ends, or 0 if there is none."""
    if b"\r" in text:
        return max((match.end() for match in _BLANK_LINE.finditer(text)), default=0)
    end = text.rfind(b"\n\n") + 2
    if end < 2:
        return 0
    if text[end - 3 : end - 2] != b"\n":
        return end
    # Of a run of line feeds each two are a blank line; an odd one out begins the next event.
    run = end - len(text[:end].rstrip(b"\n"))
    return end - run % 2


def _event(raw: bytes) -> Event:
    data = _data(raw)
    return Event(raw, data, "" if data is None else type_of(data))


def _data(raw: bytes) -> bytes | None:
    """Return the data as the standard reads it: a leading BOM is dropped, of each `data:` line one
    space after the colon is, and several lines are joined by LF."""
    text = raw.removeprefix(_BOM)
    lines = _LINE_END.split(text) if b"\r" in text else text.split(b"\n")
    found = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    if len(found) == 1:
        return found[0]
    return b"\n".join(found) if found else None


def _is_whole(data: bytes | None) -> bool:
    try:
        members(data or b"")
    except UNREADABLE:
        return False
    return True


def type_of(data: bytes) -> str:
    """Return the `type` of a JSON object; empty if it has none or is not JSON."""
    match = _LEADING_TYPE.match(data)
    if match is not None:
        return match[1].decode("utf-8", "replace")
    try:
        return _typed.decode(data).type
    except UNREADABLE:
        return ""


def event_from(data: bytes, kind: str) -> Event:
    """Return an event made by turnlane."""
    return Event(b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n", data, kind)
