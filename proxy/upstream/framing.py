"""Response body framing (RFC 9112 §6 and §7), pure: extract payload, and find where the body ends.

Theory of operation
-------------------
`feed` returns all the payload in what it was given, joined: an upstream sends one event per chunk,
and a hundred of them arrive in one read. `done` is known in the read that contains the end, and
`excess` says that something came after it, so that the connection cannot be trusted. A body that
breaks sets `error`, which the next read finds: what came before the break is still good.
"""

import re
from typing import Final, Protocol

TRAILER_BYTES: Final = 64 * 1024
_SIZE_LINE_BYTES: Final = 4096

_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[^\r\n]*|[ \t]*)\r\n")
_SIZES: Final = re.compile(rb"\r\n([0-9A-Fa-f]{1,15})\r\n")
_MANY_BYTES: Final = 2048
"""A read of more than this holds enough chunks to make splitting all of them at once worthwhile."""
_TRAILER: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[^\x00\n\v\f\r]*")
_MALFORMED: Final = "the upstream sent a malformed chunk"
_UNFINISHED: Final = "the upstream closed the connection in the middle of a body"


class Framing(Protocol):
    """Where a body ends. `excess`: something came after the end."""

    done: bool
    excess: bool
    error: str | None

    def feed(self, data: bytes) -> bytes:
        """Return the payload in `data`."""
        ...

    def eof(self) -> None:
        """Note that the upstream has closed: that ends the body, or is an error."""
        ...


class _Malformed(Exception):  # noqa: N818
    """Internal to this file: the rest of the chunks cannot be read."""


class Sized:
    """A body with a Content-Length."""

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
    """A body that ends when its connection closes."""

    def __init__(self) -> None:
        self.done = False
        self.excess = False
        self.error: str | None = None

    def feed(self, data: bytes) -> bytes:
        return data

    def eof(self) -> None:
        self.done = True


class Chunked:
    """A chunked body (RFC 9112 §7.1): each chunk follows a line with its size."""

    def __init__(self) -> None:
        self.done = False
        self.excess = False
        self.error: str | None = None
        self._held = b""
        """Start of a line that the next read will complete."""
        self._left = 0
        """Bytes still missing of the current chunk, including the CRLF after it."""
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
        """Consume every chunk that begins in `data[at:]`; return where the rest begins."""
        size = len(data)
        if size - at > _MANY_BYTES:
            at += _split_many(data[at:], parts)
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
        """Consume what has arrived of the current chunk; return where the rest begins."""
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
        """Read and drop the trailers (RFC 9112 §7.1.2)."""
        bare = rest.startswith(b"\r\n")
        lines = b"" if bare else rest.partition(b"\r\n\r\n")[0]
        if len(lines) > TRAILER_BYTES:
            raise _Malformed
        if not bare and len(lines) == len(rest):  # the next read continues them
            self._held = rest
            return
        if not bare and not all(_TRAILER.fullmatch(line) for line in lines.split(b"\r\n")):
            raise _Malformed
        self.done = True
        self.excess = len(rest) > (2 if bare else len(lines) + 4)


def _split_many(data: bytes, parts: list[bytes]) -> int:
    """Split off all chunks at the start of `data` except the last, at a quarter of the cost of one
    at a time; return their length. This guesses, since a payload may contain what looks like a size
    line: the guess is right exactly if every piece is as long as its line says."""
    pieces = _SIZES.split(b"\r\n" + data)
    lines, found = pieces[1:-2:2], pieces[2:-2:2]
    sizes = [int(line, 16) for line in lines]
    if pieces[0] or 0 in sizes or list(map(len, found)) != sizes:
        return 0
    parts += found
    return sum(sizes) + sum(map(len, lines)) + 4 * len(lines)
