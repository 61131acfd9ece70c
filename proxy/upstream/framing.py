"""Framing, pure: where a response body ends, and its bytes out of what a socket read brings.

Theory of operation
-------------------
`feed` returns all the payload in what it was given, joined: an upstream sends an event to a chunk,
and a hundred of them come in one read. `done` is known in the read that brings the end, and
`excess` says that something came behind it, after which the connection is not to be trusted. A body
that breaks sets `error`, for the next read to find: what came before is still good.
"""

import re
from typing import Final, Protocol

TRAILER_BYTES: Final = 64 * 1024
_SIZE_LINE_BYTES: Final = 4096

_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[^\r\n]*|[ \t]*)\r\n")
_SIZES: Final = re.compile(rb"\r\n([0-9A-Fa-f]{1,15})\r\n")
_MANY_BYTES: Final = 2048
"""From here on there are chunks enough for taking all of them apart at once."""
_TRAILER: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[^\x00\n\v\f\r]*")
_MALFORMED: Final = "the upstream's chunks cannot be read"
_UNFINISHED: Final = "the upstream closed the connection in the middle of a body"


class Framing(Protocol):
    done: bool
    excess: bool
    error: str | None

    def feed(self, data: bytes) -> bytes:
        """The payload in `data`."""
        ...

    def eof(self) -> None:
        """The upstream has closed: that is an end, or an error."""
        ...


class _Malformed(Exception):  # noqa: N818
    """Inside of this file: the chunks cannot be read on from here."""


class Sized:
    """A body with a length."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0
        self.excess = False
        self.error: str | None = None

    def feed(self, data: bytes) -> bytes:
        if len(data) > self._left:
            self.excess = True
            data = data[: self._left]
        self._left -= len(data)
        self.done = self._left == 0
        return data

    def eof(self) -> None:
        if not self.done:
            self.error = _UNFINISHED


class ToTheEnd:
    """A body that ends with its connection."""

    def __init__(self) -> None:
        self.done = False
        self.excess = False
        self.error: str | None = None

    def feed(self, data: bytes) -> bytes:
        return data

    def eof(self) -> None:
        self.done = True


class Chunked:
    """A body in chunks, each behind its size."""

    def __init__(self) -> None:
        self.done = False
        self.excess = False
        self.error: str | None = None
        self._held = b""
        """The begin of a line that the next bytes continue."""
        self._left = 0
        """What is to come of the chunk that has begun, the line end behind it included."""
        self._trailing = False

    def feed(self, data: bytes) -> bytes:
        if self.done:
            self.excess = self.excess or bool(data)
            return b""
        parts: list[bytes] = []
        try:
            self._read(data, parts)
        except _Malformed:
            self.error = _MALFORMED
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def eof(self) -> None:
        if not self.done:
            self.error = _UNFINISHED

    def _read(self, data: bytes, parts: list[bytes]) -> None:
        at = 0
        if self._left:
            at = self._continue(data, 0, parts)
        elif self._held:
            data, self._held = self._held + data, b""
        if not self._left and not self._trailing:
            at = self._chunks(data, at, parts)
        if self._trailing:
            self._end(data[at:])

    def _chunks(self, data: bytes, at: int, parts: list[bytes]) -> int:
        """Every chunk that begins in `data`; where that which follows them begins."""
        size = len(data)
        if size - at > _MANY_BYTES:
            at += _apart(data[at:], parts)
        match = _SIZE.match
        while at < size:
            line = match(data, at)
            if line is None:
                self._hold(data[at:])
                return size
            at = line.end()
            length = int(line[1], 16)
            if not length:
                self._trailing = True
                return at
            end = at + length
            if end + 2 > size:
                self._left = length + 2
                return self._continue(data, at, parts)
            if data[end : end + 2] != b"\r\n":
                raise _Malformed
            parts.append(data[at:end])
            at = end + 2
        return at

    def _continue(self, data: bytes, at: int, parts: list[bytes]) -> int:
        """Of the chunk that has begun, what is here."""
        payload = max(0, self._left - 2)
        piece = data[at : at + self._left]
        line_end = b"\r\n"[max(0, 2 - self._left) :]
        if not line_end.startswith(piece[payload:]):
            raise _Malformed
        self._left -= len(piece)
        parts.append(piece[:payload])
        return at + len(piece)

    def _hold(self, line: bytes) -> None:
        if b"\n" in line or len(line) > _SIZE_LINE_BYTES:
            raise _Malformed
        self._held = line

    def _end(self, rest: bytes) -> None:
        """Trailers are read and dropped."""
        bare = rest.startswith(b"\r\n")
        lines = b"" if bare else rest.partition(b"\r\n\r\n")[0]
        if len(lines) > TRAILER_BYTES:
            raise _Malformed
        if not bare and len(lines) == len(rest):  # they go on
            self._held = rest
            return
        if not bare and not all(_TRAILER.fullmatch(line) for line in lines.split(b"\r\n")):
            raise _Malformed
        self.done = True
        self.excess = len(rest) > (2 if bare else len(lines) + 4)


def _apart(data: bytes, parts: list[bytes]) -> int:
    """The chunks that `data` begins with, all but the last, at a quarter of the cost; how long they
    are. A guess, for a payload may hold what looks like a size: it is right if all lengths are."""
    pieces = _SIZES.split(b"\r\n" + data)
    lines, found = pieces[1:-2:2], pieces[2:-2:2]
    sizes = [int(line, 16) for line in lines]
    if pieces[0] or 0 in sizes or list(map(len, found)) != sizes:
        return 0
    parts += found
    return sum(sizes) + sum(map(len, lines)) + 4 * len(lines)
