"""HTTP/1.1 as a client writes and reads it (RFC 9112), pure: request heads and response heads.

Theory of operation
-------------------
The reader is strict where leniency could let two readers see two messages (RFC 9112 §11): a folded
line (§5.2), lengths that differ (§6.3), a coding other than chunked and a control character are
errors. A line may end in a bare LF (§2.2).

Not h11, which server and tests use: with it a burst turn of 100 events costs 0.7 ms more
(`docs/decisions/0009-speed.md`).
"""

import re
from dataclasses import dataclass
from typing import Final

from proxy.errors import UpstreamCut
from proxy.headers import Headers
from proxy.upstream.framing import Chunked, Framing, Sized, ToTheEnd

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
