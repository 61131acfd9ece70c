"""Decompress request bodies in strides, beside the event loop, within their bounds."""

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
"""What decompresses to no more takes about a millisecond; the rest is done beside the loop."""
_STRIDE_BYTES: Final = 4 * 2**20
"""Of output for one trip to a thread, and then accounted."""
_CORRUPT: Final = (zlib.error, zstandard.ZstdError, EOFError)

_TOO_LARGE: Final = Refused(reason=Reason.TOO_LARGE)

CODINGS: Final = frozenset({"identity", "gzip", "x-gzip", "deflate", "zstd"})


def codings(header: str | None) -> tuple[str, ...] | Refused:
    """Return the content codings in the order in which they were applied, without identity."""
    named = tuple(part.strip().lower() for part in (header or "").split(",") if part.strip())
    unknown = [name for name in named if name not in CODINGS]
    if unknown:
        return _unsupported(f"content-encoding {unknown[0]!r} is not known")
    found = tuple(name for name in named if name != "identity")
    if len(found) > _LAYERS:
        return _unsupported(f"more than {_LAYERS} content codings")
    return found


async def decoded(
    body: bytes, applied: tuple[str, ...], lease: Lease, limit_bytes: int
) -> bytes | Refused:
    """Undo the content codings, last one first, each result accounted to the lease."""
    for coding in reversed(applied):
        plain: bytes | Refused = _TOO_LARGE
        if min(len(body), limit_bytes) <= _INLINE_BYTES:
            plain = decompress(coding, body, min(limit_bytes, _INLINE_BYTES))
        if plain == _TOO_LARGE and limit_bytes > _INLINE_BYTES:
            plain = await _decompress_beside(coding, body, lease, limit_bytes)
        elif isinstance(plain, bytes) and not lease.grow(len(plain)):
            plain = Refused(reason=Reason.MEMORY_AT_CAPACITY)
        if isinstance(plain, Refused):
            return plain
        body = plain
    return body


def decompress(coding: str, body: bytes, limit_bytes: int) -> bytes | Refused:
    """Undo one coding at once; never hold more than `limit_bytes` and one step of output."""
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


async def _decompress_beside(
    coding: str, body: bytes, lease: Lease, limit_bytes: int
) -> bytes | Refused:
    """Undo one coding in a thread, a stride at a time, each accounted before the next."""
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


def _opened(coding: str, body: bytes) -> Callable[[int], bytes]:
    return _zstd(body) if coding == "zstd" else _zlib(coding, body)


def _unsupported(detail: str) -> Refused:
    return Refused(reason=Reason.UNSUPPORTED_ENCODING, detail=detail)


def _corrupt(coding: str, error: Exception) -> Refused:
    return Refused(reason=Reason.BAD_REQUEST, detail=f"the body is not valid {coding}: {error}")


def _zstd(body: bytes) -> Callable[[int], bytes]:
    sizes = zstandard.get_frame_parameters(body)
    reader = zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(
        BytesIO(body), read_across_frames=True
    )
    seen = 0

    def step(size: int) -> bytes:
        nonlocal seen
        piece = reader.read(size)
        seen += len(piece)
        if not piece and sizes.content_size not in (0, 2**64 - 1) and seen < sizes.content_size:
            raise EOFError("it ends early")
        return piece

    return step


def _zlib(coding: str, body: bytes) -> Callable[[int], bytes]:
    bits = 31  # gzip
    if coding == "deflate":  # zlib's wrapping by the standard; bare deflate is met as well
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
            raise EOFError("it goes on after its end")
        return piece

    return step


def _is_zlib(body: bytes) -> bool:
    return len(body) >= 2 and int.from_bytes(body[:2], "big") % 31 == 0
