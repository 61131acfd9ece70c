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

from proxy.shallow import UNREADABLE, members

_BLANK_LINE: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n|\Z)){2}")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_LEADING_TYPE: Final = re.compile(rb'\s*\{\s*"type"\s*:\s*"([^"\\]*)"')
_BOM: Final = b"\xef\xbb\xbf"

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

    def __init__(self) -> None:
        self._rest = b""
        self._started = False

    def feed(self, chunk: bytes) -> list[Event]:
        text = self._rest + chunk if self._rest else chunk
        if not self._started:
            if len(text) < len(_BOM) and _BOM.startswith(text):
                self._rest = text
                return []
            self._started = True
        blocks = text.split(b"\n\n") if b"\r" not in text else _split_any(text)
        self._rest = blocks.pop()
        return [_event(block) for block in blocks] if b"\r" in text else _events(blocks)

    def close(self) -> list[Event]:
        """The stream has ended: whole data that is left is an event, and gets its blank line.
        A client would drop it without one, and half an event is none, whatever its type says."""
        event = _event(self._rest + b"\n\n")
        self._rest = b""
        return [event] if event.type and _is_whole(event.data) else []


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
