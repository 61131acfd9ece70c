"""Content codings of request bodies (RFC 9110 section 8.4), undone within size and memory bounds.

A small body is decompressed in place; a large one in a thread, a stride at a time, so that other
turns go on and each stride is charged to the lease before the next is made.
"""

import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Final

import trio
import zstandard

from lifecycle import Lease
from proxy.refusal import Reason, Refused

_STEP_BYTES: Final = 64 * 1024
_LAYERS: Final = 3
_INLINE_BYTES: Final = 256 * 1024
"""What decompresses to no more takes about a millisecond; the rest is done in a thread."""
_STRIDE_BYTES: Final = 4 * 2**20
"""Output of one trip to a thread."""
_CORRUPT: Final = (zlib.error, zstandard.ZstdError, EOFError)

_TOO_LARGE: Final = Refused(reason=Reason.TOO_LARGE)

CODINGS: Final = frozenset({"identity", "gzip", "x-gzip", "deflate", "zstd"})


def codings(header: str) -> tuple[str, ...] | Refused:
    """Return the content codings in the order in which they were applied, as the header lists them
    (RFC 9110 section 8.4), without identity."""
    named = tuple(part.strip().lower() for part in header.split(",") if part.strip())
    unknown = [name for name in named if name not in CODINGS]
    if unknown:
        return _unsupported(f"content-encoding {unknown[0]!r} is not supported")
    found = tuple(name for name in named if name != "identity")
    if len(found) > _LAYERS:
        return _unsupported(f"the body has more than {_LAYERS} content codings")
    return found


async def decoded(
    body: bytes, applied: tuple[str, ...], lease: Lease, limit_bytes: int
) -> bytes | Refused:
    """Undo the content codings, last one first, each result charged to the lease."""
    for coding in reversed(applied):
        plain: bytes | Refused = _TOO_LARGE
        if min(len(body), limit_bytes) <= _INLINE_BYTES:
            plain = decompress(coding, body, min(limit_bytes, _INLINE_BYTES))
        if plain == _TOO_LARGE and limit_bytes > _INLINE_BYTES:
            # Too large to do in place, which says nothing about the real limit.
            plain = await _decompress_in_thread(coding, body, lease, limit_bytes)
        elif isinstance(plain, bytes) and not lease.grow(len(plain)):
            plain = Refused(reason=Reason.MEMORY_AT_CAPACITY)
        if isinstance(plain, Refused):
            return plain
        body = plain
    return body


def decompress(coding: str, body: bytes, limit_bytes: int) -> bytes | Refused:
    """Undo one coding in place, holding never more than `limit_bytes` and one step of output."""
    found = bytearray()
    try:
        step = _opened(coding, body)
        while piece := step(_STEP_BYTES):
            found += piece
            if len(found) > limit_bytes:
                return _TOO_LARGE
    except _CORRUPT as error:
        return _corrupt(coding, error)
    return bytes(found)


async def _decompress_in_thread(
    coding: str, body: bytes, lease: Lease, limit_bytes: int
) -> bytes | Refused:
    """Undo one coding in a thread, a stride at a time, each charged before the next."""
    found = bytearray()
    try:
        step = _opened(coding, body)
        while piece := await trio.to_thread.run_sync(_stride, step):
            found += piece
            if len(found) > limit_bytes:
                return _TOO_LARGE
            if not lease.grow(len(piece)):
                return Refused(reason=Reason.MEMORY_AT_CAPACITY)
    except _CORRUPT as error:
        return _corrupt(coding, error)
    return bytes(found)


def _stride(step: Callable[[int], bytes]) -> bytes:
    found = bytearray()
    while len(found) < _STRIDE_BYTES and (piece := step(_STEP_BYTES)):
        found += piece
    return bytes(found)


# The functions below return a step: called with a size, it returns the next piece of output, empty
# at the end. It raises one of _CORRUPT for a body that is cut short or goes on after its end, which
# the libraries' own stream readers pass over.


def _opened(coding: str, body: bytes) -> Callable[[int], bytes]:
    return _zstd(body) if coding == "zstd" else _zlib(coding, body)


def _unsupported(detail: str) -> Refused:
    return Refused(reason=Reason.UNSUPPORTED_ENCODING, detail=detail)


def _corrupt(coding: str, error: Exception) -> Refused:
    return Refused(reason=Reason.BAD_REQUEST, detail=f"the body is not valid {coding}: {error}")


def _zstd(body: bytes) -> Callable[[int], bytes]:
    sizes = zstandard.get_frame_parameters(body)
    # A frame names the window that its decoder must hold (RFC 8878 section 3.1.1.1.2); 2**27 bytes
    # is the most that the zstd tool accepts unasked. Several frames are one content (section 3).
    reader = zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(
        BytesIO(body), read_across_frames=True
    )
    seen = 0

    def step(size: int) -> bytes:
        nonlocal seen
        piece = reader.read(size)
        seen += len(piece)
        # The reader ends silently where a frame is cut short, and only a declared size shows that
        # (2**64 - 1: none is declared). A cut frame without one is left to the reader of the JSON.
        if not piece and sizes.content_size not in (0, 2**64 - 1) and seen < sizes.content_size:
            raise EOFError("it ends early")
        return piece

    return step


def _zlib(coding: str, body: bytes) -> Callable[[int], bytes]:
    bits = 31  # zlib's code for a gzip wrapper
    if coding == "deflate":
        # RFC 9110 section 8.4.1.2: deflate in a zlib wrapper; "some non-conformant implementations
        # send the deflate data without it", and zlib's code for that is -15.
        bits = 15 if body[:1] and body[0] & 0x0F == 8 and _is_zlib(body) else -15
    inflater = zlib.decompressobj(bits)
    rest = body

    def step(size: int) -> bytes:
        nonlocal rest
        piece = inflater.decompress(rest, size)
        rest = inflater.unconsumed_tail
        if not piece and not inflater.eof:
            raise EOFError("it ends early")
        if not piece and inflater.unused_data:
            raise EOFError("data follows its end")
        return piece

    return step


def _is_zlib(body: bytes) -> bool:
    """Return whether a body begins with a zlib header: RFC 1950 section 2.2, CMF and FCHECK."""
    return len(body) >= 2 and int.from_bytes(body[:2], "big") % 31 == 0
