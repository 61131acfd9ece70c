"""Content codings of bodies: undone exactly, within bounds of size and memory, or refused."""

import gzip
import zlib
from collections.abc import Callable

import pytest
import trio
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from proxy.ingress.decoding import CODINGS, codings, decoded, decompress
from proxy.refusal import Reason, Refused
from tests.proxy.ingress.bodies import MIB, admitted, held

TOO_LARGE = Refused(reason=Reason.TOO_LARGE)


def raw_deflate(data: bytes, level: int = 6) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def zstd_stream(data: bytes) -> bytes:
    """As a client writes it that does not know the size beforehand."""
    packer = zstandard.ZstdCompressor().compressobj()
    return packer.compress(data) + packer.flush()


Pack = Callable[[bytes], bytes]
PACKERS: dict[str, tuple[str, Pack]] = {
    "gzip": ("gzip", lambda data: gzip.compress(data, mtime=0)),
    "x-gzip": ("x-gzip", lambda data: gzip.compress(data, mtime=0)),
    "deflate": ("deflate", zlib.compress),
    "bare deflate": ("deflate", raw_deflate),
    "zstd": ("zstd", zstandard.compress),
    "zstd stream": ("zstd", zstd_stream),
}
EVERY_PACKER = pytest.mark.parametrize(("coding", "pack"), PACKERS.values(), ids=PACKERS)
EVERY_CODING = pytest.mark.parametrize("coding", sorted(CODINGS - {"identity"}))


def reason(found: bytes | Refused) -> Reason | None:
    return found.reason if isinstance(found, Refused) else None


@pytest.mark.parametrize(
    ("header", "applied"),
    [
        *(("", ()), ("identity", ()), (" , identity ,", ()), ("zstd", ("zstd",))),
        *(("GZip", ("gzip",)), ("deflate, identity, gzip", ("deflate", "gzip"))),
        ("gzip,gzip,gzip", ("gzip", "gzip", "gzip")),
    ],
)
def test_codings_are_listed_in_the_order_in_which_they_were_applied(
    header: str, applied: tuple[str, ...]
) -> None:
    assert codings(header) == applied


@pytest.mark.parametrize(
    ("header", "words"),
    [
        *(("br", "'br'"), ("gzip, compress", "'compress'"), ("chunked", "'chunked'")),
        *(("gzip;q=1", "'gzip;q=1'"), ("gzip,gzip,gzip,zstd", "more than 3")),
    ],
)
def test_a_coding_that_cannot_be_undone_is_named(header: str, words: str) -> None:
    bad = codings(header)

    assert isinstance(bad, Refused)
    assert bad.reason is Reason.UNSUPPORTED_ENCODING
    assert words in bad.detail


# Decompressing.


@EVERY_PACKER
@pytest.mark.parametrize("data", [b"", b"x", b'{"a":1}' * 40_000], ids=["empty", "short", "long"])
def test_every_coding_is_undone(coding: str, pack: Pack, data: bytes) -> None:
    assert decompress(coding, pack(data), MIB) == data


def test_several_zstd_frames_are_one_body() -> None:
    frames = zstandard.compress(b"ab") + zstandard.compress(b"") + zstd_stream(b"c")

    assert decompress("zstd", frames, MIB) == b"abc"


@given(st.binary(max_size=200), st.integers(0, 9))
def test_bare_deflate_is_not_taken_for_the_wrapped_kind(data: bytes, level: int) -> None:
    assert decompress("deflate", raw_deflate(data, level), MIB) == data


@EVERY_CODING
@pytest.mark.parametrize(
    "body", [b"", b"x", b'{"a":1}', b"\x78\x9c", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\0" * 99]
)
def test_a_body_that_was_not_compressed_is_refused(coding: str, body: bytes) -> None:
    bad = decompress(coding, body, MIB)

    assert isinstance(bad, Refused)
    assert bad.reason is Reason.BAD_REQUEST
    assert coding in bad.detail


@EVERY_PACKER
def test_a_body_that_is_cut_short_is_refused_wherever_it_is_cut(coding: str, pack: Pack) -> None:
    data = bytes(range(256)) * 3
    whole = pack(data)

    for length in range(5 if pack is zstd_stream else 0, len(whole)):
        found = decompress(coding, whole[:length], MIB)
        # A zstd frame that does not declare its size cannot show that it was cut.
        assert isinstance(found, Refused) or (pack is zstd_stream and data.startswith(found))


@EVERY_PACKER
def test_a_body_that_goes_on_after_its_end_is_refused(coding: str, pack: Pack) -> None:
    assert isinstance(decompress(coding, pack(b'{"a":1}') + b"more of it", MIB), Refused)


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_a_changed_byte_is_noticed(name: str) -> None:
    coding, pack = PACKERS[name]
    whole = pack(b'{"a":1}' * 9)

    assert isinstance(decompress(coding, whole[:-1] + bytes([whole[-1] ^ 1]), MIB), Refused)


@EVERY_PACKER
def test_a_bomb_is_too_large_and_what_fits_exactly_is_not(coding: str, pack: Pack) -> None:
    whole = pack(bytes(4 * MIB))

    assert len(whole) < MIB // 10
    assert decompress(coding, whole, 4 * MIB) == bytes(4 * MIB)
    assert decompress(coding, whole, 4 * MIB - 1) == TOO_LARGE
    assert decompress(coding, whole, 1) == TOO_LARGE


@EVERY_CODING
@given(body=st.binary(max_size=80))
def test_any_bytes_are_undone_or_refused(coding: str, body: bytes) -> None:
    assert isinstance(decompress(coding, body, 100), bytes | Refused)


# Under a lease.


async def test_without_a_coding_a_body_stays_as_it_is() -> None:
    async with admitted(announced=5) as (lease, admission):
        assert await decoded(b"plain", (), lease, MIB) == b"plain"
        assert held(admission) == 5


async def test_stacked_codings_are_undone_from_the_last_and_each_result_is_charged() -> None:
    inner = zstandard.compress(b"x" * 1000)
    outer = gzip.compress(inner, mtime=0)
    async with admitted(announced=len(outer)) as (lease, admission):
        assert await decoded(outer, ("zstd", "gzip"), lease, MIB) == b"x" * 1000
        assert held(admission) == len(outer) + len(inner) + 1000


@pytest.mark.parametrize(
    ("body", "applied", "expected"),
    [
        (b"no gzip", ("gzip",), Reason.BAD_REQUEST),
        (gzip.compress(b"no zstd", mtime=0), ("zstd", "gzip"), Reason.BAD_REQUEST),
        (zlib.compress(bytes(MIB + 1)), ("deflate",), Reason.TOO_LARGE),
    ],
)
async def test_a_bad_layer_is_refused_and_not_charged(
    body: bytes, applied: tuple[str, ...], expected: Reason
) -> None:
    async with admitted(announced=len(body)) as (lease, admission):
        assert reason(await decoded(body, applied, lease, MIB)) is expected
        assert held(admission) < len(body) + 100


async def test_a_result_for_which_there_is_no_memory_is_refused() -> None:
    body = zlib.compress(bytes(MIB))
    async with admitted(announced=len(body), memory=MIB) as (lease, admission):
        bad = await decoded(body, ("deflate",), lease, 2 * MIB)

        assert reason(bad) is Reason.MEMORY_AT_CAPACITY
        assert held(admission) == len(body)


async def test_other_tasks_run_while_a_large_body_is_decompressed() -> None:
    data = bytes(range(256)) * 4 * 1100
    body = zlib.compress(data, 0)
    async with admitted() as (lease, _), trio.open_nursery() as nursery:
        turns = []

        async def others() -> None:
            while True:
                turns.append(trio.current_time())
                await trio.lowlevel.checkpoint()

        nursery.start_soon(others)
        assert len(body) > MIB
        assert await decoded(body, ("deflate",), lease, 2 * MIB) == data
        assert turns
        nursery.cancel_scope.cancel()
