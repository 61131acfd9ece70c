"""Server-sent events, pure: bytes in any chunking to events, each with its bytes unchanged.

Theory of operation
-------------------
An event ends at a blank line; line ends may be LF, CRLF or CR, mixed. Nearly every upstream uses
LF, so a chunk without CR takes the short path: split at two line feeds. With a CR in sight the end
is searched by a pattern; a CR that is the last byte so far may be half of a CRLF and has to wait.

The type of an event is the `type` member of its data. It is the first member in every stream seen,
so a pattern at the start of the data finds it; anything else is decoded, shallowly.
"""

import re
from typing import Final, NamedTuple

import msgspec

from proxy.errors import UpstreamCut
from proxy.shallow import UNREADABLE, members

_BLANK_LINE: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n|\Z)){2}")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_LEADING_TYPE: Final = re.compile(rb'\s*\{\s*"type"\s*:\s*"([^"\\]*)"')
_BOM: Final = b"\xef\xbb\xbf"
_LOOK_BACK: Final = 2  # bytes before a chunk: the end of a line, and a carriage return in doubt

EVENT_BYTES: Final = 64 * 2**20
"""One event; Codex itself takes 16 MiB. An upstream must not fill the memory with a single one."""

TERMINAL_TYPES: Final = frozenset(
    {"response.completed", "response.failed", "response.incomplete", "error"}
)


class Event(NamedTuple):
    """One event: `raw` as it came, blank line included; `data` None for comments alone."""

    raw: bytes
    data: bytes | None
    type: str

    @property
    def terminal(self) -> bool:
        return self.type in TERMINAL_TYPES


class _Typed(msgspec.Struct):
    type: str = ""


_typed: Final = msgspec.json.Decoder(_Typed)


class Splitter:
    """Feed it what arrives; it returns the events that are complete."""

    def __init__(self, limit_bytes: int = EVENT_BYTES) -> None:
        self._limit = limit_bytes
        self._rest: list[bytes] = []
        self._size = 0
        self._tail = b""

    def feed(self, chunk: bytes) -> list[Event]:
        """Raises UpstreamCut for an event without an end."""
        if self._rest and not _has_blank_line(seen := self._tail + chunk):
            return self._keep(chunk, seen)
        text = b"".join((*self._rest, chunk)) if self._rest else chunk
        blocks = text.split(b"\n\n") if b"\r" not in text else _split_any(text)
        rest = blocks.pop()
        self._rest = [rest] if rest else []
        self._size, self._tail = len(rest), rest[-_LOOK_BACK:]
        return [_event(block) for block in blocks] if b"\r" in text else _events(blocks)

    def _keep(self, chunk: bytes, seen: bytes) -> list[Event]:
        """No event ends here. A long one is searched in pieces, and joined once, at its end."""
        self._rest.append(chunk)
        self._tail = seen[-_LOOK_BACK:]
        self._size += len(chunk)
        if self._size > self._limit:
            raise UpstreamCut(f"an event of more than {self._limit} bytes")
        return []

    def close(self) -> list[Event]:
        """The stream has ended: whole data that is left is an event, and gets its blank line.
        A client would drop it without one, and half an event is none, whatever its type says."""
        event = _event(b"".join(self._rest) + b"\n\n")
        self._rest, self._tail = [], b""
        return [event] if event.type and _is_whole(event.data) else []


def _has_blank_line(text: bytes) -> bool:
    return _BLANK_LINE.search(text) is not None if b"\r" in text else b"\n\n" in text


def _split_any(text: bytes) -> list[bytes]:
    blocks = []
    start = 0
    for match in _BLANK_LINE.finditer(text):
        blocks.append(text[start : match.end()])
        start = match.end()
    blocks.append(text[start:])
    return blocks


def _events(blocks: list[bytes]) -> list[Event]:
    """The short path: LF only, and the blank line is not part of the blocks."""
    return [_event(block + b"\n\n") for block in blocks]


def _event(raw: bytes) -> Event:
    data = _data(raw)
    return Event(raw, data, "" if data is None else type_of(data))


def _data(raw: bytes) -> bytes | None:
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
    """The `type` of a JSON object; empty when it has none or is not JSON."""
    match = _LEADING_TYPE.match(data)
    if match is not None:
        return match[1].decode("utf-8", "replace")
    try:
        return _typed.decode(data).type
    except UNREADABLE:
        return ""


def event_from(data: bytes, kind: str) -> Event:
    """An event of our own making."""
    return Event(b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n", data, kind)
