"""HTTP/1.1 as a client writes and reads it (RFC 9112), pure: heads, and where a body ends.

Theory of operation
-------------------
The reader of heads is strict where leniency could let two readers see two messages (RFC 9112 §11):
a folded line (§5.2), lengths that differ (§6.3), a coding other than chunked and a control
character are errors. A line may end in a bare LF (§2.2).

A framing (§6, §7) extracts the payload of a body. `feed` returns all the payload in what it was
given, joined: an upstream sends one event per chunk, and a hundred of them arrive in one read.
`done` is known in the read that contains the end, and `excess` says that something came after it,
so that the connection cannot be trusted. A body that breaks sets `error`, which the next read
finds: what came before the break is still good.

Not h11, which server and tests use: with it a burst turn of 100 events costs 0.7 ms more
(`docs/decisions/0009-speed.md`).
"""

import re
from dataclasses import dataclass
from typing import Final, Protocol

from proxy.errors import UpstreamCut
from proxy.headers import Headers

# Bodies.

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


# Heads.

HEAD_BYTES: Final = 64 * 1024

_END: Final = re.compile(rb"\n\r?\n")
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t \x21-\xff]*)?")
_NAME: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(rb"[^\x00\n\v\f\r]*")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_LINE: Final = re.compile(
    rb"(?P<name>[-!#$%&'*+.^_`|~0-9A-Za-z]+):[ \t]*(?P<value>[^\x00\n\v\f\r]*)"
)


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The head of a response. `reusable`: the connection may carry another request once `framing`
    is done."""

    status: int
    headers: Headers
    framing: Framing
    reusable: bool


def request_head(
    method: str, target: bytes, host: bytes, headers: Headers, length: int | None
) -> bytes | None:
    """Return the bytes of a request up to its body; None if a header would not be one line."""
    lines = [method.encode() + b" " + target + b" HTTP/1.1", b"host: " + host]
    for name, value in headers:
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            return None
        lines.append(name + b": " + value)
    if length is not None:
        lines.append(b"content-length: %d" % length)
    lines.append(b"\r\n")
    return b"\r\n".join(lines)


def end_of_head(data: bytes) -> int:
    """Return where the head at the start of `data` ends, or 0 if it is not complete. Raises
    UpstreamCut for one of more than HEAD_BYTES."""
    match = _END.search(data)
    end = 0 if match is None else match.end()
    if end > HEAD_BYTES or (not end and len(data) > HEAD_BYTES):
        raise UpstreamCut(f"a response head of more than {HEAD_BYTES} bytes")
    return end


def response_head(data: bytes, method: str, *, whole: bool = True) -> ResponseHead | None:
    """Read a complete head; None for an interim response (1xx). `whole`: all of the request was
    sent. Raises UpstreamCut for what is not such a head.
    """
    lines = [line.removesuffix(b"\r") for line in data.rstrip(b"\r\n").split(b"\n")]
    first = _STATUS.fullmatch(lines[0])
    if first is None:
        raise UpstreamCut("the answer is not HTTP/1.1")
    status = int(first[2])
    if status == 101:
        raise UpstreamCut("the upstream switches to a protocol that was not requested")
    headers = headers_of(lines[1:])
    if status < 200:
        return None
    framing, sure = _framing(status, method, headers)
    reusable = whole and sure and first[1] == b"1" and not _closes(headers)
    return ResponseHead(status, headers, framing, reusable)


def headers_of(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    """Split header lines into lower-case names and values without surrounding whitespace. Raises
    UpstreamCut."""
    found = []
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise UpstreamCut("the answer has a malformed header")
        found.append((match["name"].lower(), match["value"].rstrip(b" \t")))
    return found


def _framing(status: int, method: str, headers: Headers) -> tuple[Framing, bool]:
    """Return how the body is delimited (RFC 9112 §6.3), and whether that is certain enough to use
    the connection again: a body with both a coding and a length may be an attack (§6.1)."""
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    stated = [value for name, value in headers if name == b"content-length"]
    if method == "HEAD" or status in (204, 304):
        return Sized(0), True
    if codings:
        if codings != [b"chunked"]:
            raise UpstreamCut("the answer has a transfer coding other than chunked")
        return Chunked(), not stated
    if stated:
        lengths = {part.strip(b" \t") for value in stated for part in value.split(b",")}
        length = lengths.pop()
        if lengths or not _LENGTH.fullmatch(length):
            raise UpstreamCut("the answer has a malformed content-length")
        return Sized(int(length)), True
    return ToTheEnd(), False


def _closes(headers: Headers) -> bool:
    tokens = (value.lower().split(b",") for name, value in headers if name == b"connection")
    return any(token.strip(b" \t") == b"close" for values in tokens for token in values)
