"""Body: what a client sends, within its bounds of size, time and memory."""

import gzip
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from lifecycle import Admission, Ask, Lease, Limits, PrincipalId
from proxy.ingress.body import EARLY_BYTES, Body
from proxy.ingress.decoding import CODINGS, codings, decoded, decompress
from proxy.refusal import Reason, Refused

MIB = 2**20
SILENT_SECONDS = 10.0
SECONDS = 120.0


def raw_deflate(data: bytes, level: int = 6) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def zstd_stream(data: bytes) -> bytes:
    """As a client writes it that does not know the size beforehand."""
    packer = zstandard.ZstdCompressor().compressobj()
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", lambda data: gzip.compress(data, mtime=0)),
    "x-gzip": ("x-gzip", lambda data: gzip.compress(data, mtime=0)),
    "deflate": ("deflate", zlib.compress),
    "bare deflate": ("deflate", raw_deflate),
    "zstd": ("zstd", zstandard.compress),
    "zstd stream": ("zstd", zstd_stream),
}
EVERY_PACKER = pytest.mark.parametrize(("coding", "pack"), PACKERS.values(), ids=PACKERS)


@asynccontextmanager
async def admitted(
    *, announced: int = 0, memory: int = 256 * MIB
) -> AsyncIterator[tuple[Lease, Admission]]:
    admission = Admission(Limits(memory_bytes=memory))
    ask = Ask(principal=PrincipalId("local"), body_bytes=announced)
    async with admission.lease(ask) as lease:
        yield lease, admission


def held(admission: Admission) -> int:
    return admission.statistics().memory.held_bytes


class Reading:
    """`Body.read` in a task of its own: what came of it, and when."""

    def __init__(self) -> None:
        self.result: bytes | Refused | None = None
        self.at: float | None = None

    async def run(self, body: Body, lease: Lease) -> None:
        self.result = await body.read(lease, SILENT_SECONDS, SECONDS)
        self.at = trio.current_time()


async def reading(nursery: trio.Nursery, body: Body, lease: Lease) -> Reading:
    found = Reading()
    nursery.start_soon(found.run, body, lease)
    await wait_all_tasks_blocked()
    return found


# Which codings.


@pytest.mark.parametrize(
    ("header", "applied"),
    [
        ("", ()),
        ("identity", ()),
        (" , identity ,", ()),
        ("zstd", ("zstd",)),
        ("GZip", ("gzip",)),
        ("deflate, identity, gzip", ("deflate", "gzip")),
        ("gzip,gzip,gzip", ("gzip", "gzip", "gzip")),
    ],
)
def test_codings_are_named_in_the_order_in_which_they_were_applied(
    header: str, applied: tuple[str, ...]
) -> None:
    assert codings(header) == applied


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("br", "'br'"),
        ("gzip, compress", "'compress'"),
        ("chunked", "'chunked'"),
        ("gzip;q=1", "'gzip;q=1'"),
        ("gzip,gzip,gzip,zstd", "more than 3"),
    ],
)
def test_a_coding_that_nobody_knows_is_named(header: str, words: str) -> None:
    bad = codings(header)

    assert isinstance(bad, Refused)
    assert bad.reason is Reason.UNSUPPORTED_ENCODING
    assert words in bad.detail


# Decompressing.


@EVERY_PACKER
@pytest.mark.parametrize("data", [b"", b"x", b'{"a":1}' * 40_000], ids=["empty", "short", "long"])
def test_every_coding_is_undone(coding: str, pack: Callable[[bytes], bytes], data: bytes) -> None:
    assert decompress(coding, pack(data), MIB) == data


def test_several_zstd_frames_are_one_body() -> None:
    frames = zstandard.compress(b"ab") + zstandard.compress(b"") + zstd_stream(b"c")

    assert decompress("zstd", frames, MIB) == b"abc"


@given(st.binary(max_size=200), st.integers(0, 9))
def test_bare_deflate_is_never_taken_for_the_wrapped_kind(data: bytes, level: int) -> None:
    assert decompress("deflate", raw_deflate(data, level), MIB) == data


@pytest.mark.parametrize("coding", sorted(CODINGS - {"identity"}))
@pytest.mark.parametrize(
    "body",
    [b"", b"x", b'{"a":1}', b"\x78\x9c", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\0" * 99],
)
def test_what_was_never_compressed_is_bad(coding: str, body: bytes) -> None:
    bad = decompress(coding, body, MIB)

    assert isinstance(bad, Refused)
    assert bad.reason is Reason.BAD_REQUEST
    assert coding in bad.detail


@pytest.mark.parametrize("name", [name for name in PACKERS if name != "zstd stream"])
def test_a_body_that_ends_early_is_bad_wherever_it_ends(name: str) -> None:
    coding, pack = PACKERS[name]
    whole = pack(bytes(range(256)) * 3)

    for length in range(len(whole)):
        assert isinstance(decompress(coding, whole[:length], MIB), Refused)


def test_a_zstd_body_of_unknown_size_that_ends_early_is_no_longer_than_what_came() -> None:
    data = bytes(range(256)) * 3
    whole = zstd_stream(data)

    for length in range(5, len(whole)):
        found = decompress("zstd", whole[:length], MIB)
        assert isinstance(found, Refused) or data.startswith(found)


@pytest.mark.parametrize("name", PACKERS)
def test_a_body_that_goes_on_after_its_end_is_bad(name: str) -> None:
    coding, pack = PACKERS[name]

    assert isinstance(decompress(coding, pack(b'{"a":1}') + b"more of it", MIB), Refused)


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_a_changed_byte_is_noticed(name: str) -> None:
    coding, pack = PACKERS[name]
    whole = pack(b'{"a":1}' * 9)

    assert isinstance(decompress(coding, whole[:-1] + bytes([whole[-1] ^ 1]), MIB), Refused)


@EVERY_PACKER
def test_a_bomb_is_too_large_and_what_fits_exactly_is_not(
    coding: str, pack: Callable[[bytes], bytes]
) -> None:
    whole = pack(bytes(4 * MIB))

    assert len(whole) < MIB // 10
    assert decompress(coding, whole, 4 * MIB) == bytes(4 * MIB)
    assert decompress(coding, whole, 4 * MIB - 1) == Refused(reason=Reason.TOO_LARGE)
    assert decompress(coding, whole, 1) == Refused(reason=Reason.TOO_LARGE)


@pytest.mark.parametrize("coding", sorted(CODINGS - {"identity"}))
@given(body=st.binary(max_size=80))
def test_anything_may_be_sent(coding: str, body: bytes) -> None:
    assert isinstance(decompress(coding, body, 100), bytes | Refused)


# Decompressing under a lease.


async def test_without_a_coding_nothing_happens_to_a_body() -> None:
    async with admitted(announced=5) as (lease, admission):
        assert await decoded(b"plain", (), lease, MIB) == b"plain"
        assert held(admission) == 5


async def test_stacked_codings_are_undone_from_the_last_and_each_result_is_paid_for() -> None:
    inner = zstandard.compress(b"x" * 1000)
    outer = gzip.compress(inner, mtime=0)
    async with admitted(announced=len(outer)) as (lease, admission):
        assert await decoded(outer, ("zstd", "gzip"), lease, MIB) == b"x" * 1000
        assert held(admission) == len(outer) + len(inner) + 1000


@pytest.mark.parametrize(
    ("body", "applied", "reason"),
    [
        (b"no gzip", ("gzip",), "bad_request"),
        (gzip.compress(b"no zstd", mtime=0), ("zstd", "gzip"), "bad_request"),
        (zlib.compress(bytes(MIB + 1)), ("deflate",), "too_large"),
    ],
)
async def test_a_bad_layer_ends_it_and_is_not_paid_for(
    body: bytes, applied: tuple[str, ...], reason: str
) -> None:
    async with admitted(announced=len(body)) as (lease, admission):
        bad = await decoded(body, applied, lease, MIB)

        assert isinstance(bad, Refused)
        assert bad.reason == reason
        assert held(admission) < len(body) + 100


async def test_a_result_for_which_there_is_no_memory_is_refused() -> None:
    body = zlib.compress(bytes(MIB))
    async with admitted(announced=len(body), memory=MIB) as (lease, admission):
        bad = await decoded(body, ("deflate",), lease, 2 * MIB)

        assert bad == Refused(reason=Reason.MEMORY_AT_CAPACITY)
        assert held(admission) == len(body)


async def test_a_large_body_is_decompressed_beside_the_others() -> None:
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


# Feeding and reading.


@pytest.mark.parametrize(
    "chunks", [[b""], [b"abc"], [b"a", b"b", b"c"], [b"abc", b""], [b"", b"abc"]]
)
async def test_a_body_is_its_chunks_in_order(chunks: list[bytes]) -> None:
    body = Body(MIB, 0)
    async with admitted() as (lease, _):
        for index, chunk in enumerate(chunks):
            await body.feed(chunk, more=index < len(chunks) - 1)

        assert await body.read(lease, SILENT_SECONDS, SECONDS) == b"".join(chunks)


async def test_reading_waits_for_the_last_chunk(nursery: trio.Nursery) -> None:
    body = Body(MIB, 0)
    async with admitted() as (lease, _):
        read = await reading(nursery, body, lease)
        await body.feed(b"a", more=True)
        await wait_all_tasks_blocked()
        assert read.result is None
        await body.feed(b"b", more=False)
        await wait_all_tasks_blocked()

        assert read.result == b"ab"


async def test_a_body_that_falls_silent_is_given_up(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    body = Body(MIB, 0)
    async with admitted() as (lease, _):
        read = await reading(nursery, body, lease)
        await trio.sleep(9)
        await body.feed(b"a", more=True)
        await trio.sleep(9)
        await body.feed(b"", more=True)  # a sign of life, too
        await trio.sleep(60)

        assert read.result == Refused(reason=Reason.BODY_TIMEOUT)
        assert read.at == 28


async def test_a_body_that_never_ends_is_given_up_however_steadily_it_comes(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    body = Body(MIB, 0)
    async with admitted() as (lease, _):
        read = await reading(nursery, body, lease)
        while read.result is None:
            await trio.sleep(7)
            await body.feed(b"a", more=True)

        assert read.result == Refused(reason=Reason.BODY_TIMEOUT)
        assert read.at == SECONDS


async def test_a_body_given_up_is_read_on_and_not_kept(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    body = Body(MIB, 0)
    async with admitted() as (lease, admission):
        await reading(nursery, body, lease)
        await trio.sleep(60)
        await body.feed(bytes(EARLY_BYTES + 1), more=True)
        assert not body.complete.is_set()
        await body.feed(b"", more=False)

        assert body.complete.is_set()
        assert held(admission) == 0


# Size and memory.


async def test_a_body_of_exactly_the_limit_is_taken(nursery: trio.Nursery) -> None:
    body = Body(100, 0)
    async with admitted() as (lease, _):
        read = await reading(nursery, body, lease)
        await body.feed(bytes(60), more=True)
        await body.feed(bytes(40), more=False)
        await wait_all_tasks_blocked()

        assert read.result == bytes(100)


async def test_a_larger_one_is_refused_before_it_has_ended(nursery: trio.Nursery) -> None:
    body = Body(100, 0)
    async with admitted() as (lease, admission):
        read = await reading(nursery, body, lease)
        await body.feed(bytes(60), more=True)
        await body.feed(bytes(41), more=True)
        await wait_all_tasks_blocked()

        assert read.result == Refused(reason=Reason.TOO_LARGE)
        assert held(admission) == 60
        await body.feed(bytes(10**6), more=False)  # taken off the wire, and dropped
        assert held(admission) == 60


async def test_a_larger_one_that_came_at_once_is_refused_too() -> None:
    body = Body(100, 0)
    await body.feed(bytes(101), more=False)
    async with admitted() as (lease, admission):
        assert await body.read(lease, SILENT_SECONDS, SECONDS) == Refused(reason=Reason.TOO_LARGE)
        assert held(admission) == 0


async def test_what_was_announced_is_held_once_and_only_more_is_added(
    nursery: trio.Nursery,
) -> None:
    body = Body(MIB, 100)
    async with admitted(announced=100) as (lease, admission):
        await body.feed(bytes(30), more=True)
        read = await reading(nursery, body, lease)
        await body.feed(bytes(70), more=True)
        assert held(admission) == 100
        await body.feed(bytes(50), more=True)
        assert held(admission) == 150
        await body.feed(bytes(7), more=False)
        await wait_all_tasks_blocked()

        assert held(admission) == 157
        assert read.result == bytes(157)


async def test_what_came_before_the_lease_is_added_with_it() -> None:
    body = Body(MIB, 0)
    await body.feed(bytes(30), more=False)
    async with admitted() as (lease, admission):
        await body.read(lease, SILENT_SECONDS, SECONDS)

        assert held(admission) == 30


async def test_growth_beyond_the_memory_gate_is_refused(nursery: trio.Nursery) -> None:
    body = Body(MIB, 0)
    async with admitted(memory=100) as (lease, admission):
        read = await reading(nursery, body, lease)
        await body.feed(bytes(100), more=True)
        assert held(admission) == 100
        await body.feed(bytes(1), more=True)
        await wait_all_tasks_blocked()

        assert read.result == Refused(reason=Reason.MEMORY_AT_CAPACITY)
        assert held(admission) == 100


async def test_little_may_come_before_anybody_has_decided(nursery: trio.Nursery) -> None:
    body = Body(MIB, 0)
    fed: list[str] = []

    async def feed(name: str, size: int) -> None:
        await body.feed(bytes(size), more=True)
        fed.append(name)

    await feed("little", EARLY_BYTES)
    nursery.start_soon(feed, "more", 1)
    await wait_all_tasks_blocked()
    assert fed == ["little"]
    async with admitted() as (lease, _):
        nursery.start_soon(body.read, lease, SILENT_SECONDS, SECONDS)
        await wait_all_tasks_blocked()

        assert fed == ["little", "more"]
        nursery.cancel_scope.cancel()


async def test_a_decision_against_it_lets_it_come_and_keeps_nothing(
    nursery: trio.Nursery,
) -> None:
    body = Body(MIB, 0)
    fed = trio.Event()

    async def feed() -> None:
        await body.feed(bytes(EARLY_BYTES + 1), more=True)
        fed.set()

    nursery.start_soon(feed)
    await wait_all_tasks_blocked()
    assert not fed.is_set()
    body.discard()
    await wait_all_tasks_blocked()
    assert fed.is_set()
    await body.feed(bytes(10 * MIB), more=False)

    assert body.complete.is_set()
