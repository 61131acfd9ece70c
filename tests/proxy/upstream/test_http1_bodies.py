"""Where a body ends: the same bytes come out of any chunking, and what is broken is noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.upstream.http1 import TRAILER_BYTES, Chunked, Framing, Sized, ToTheEnd
from tests.testkit.cutting import cuts, pieces

SIZES = st.sampled_from(["%x", "%X", "%04x", "%x ", '%x;name="a;b"'])
TRAILERS = st.lists(st.sampled_from([b"x-sum: 1\r\n", b"x-empty:\r\n"]), max_size=2)


@st.composite
def chunked_bodies(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A body, and a way to write it in chunks."""
    body, written = b"", b""
    for part in draw(st.lists(st.binary(min_size=1, max_size=40), max_size=6)):
        body += part
        written += (draw(SIZES) % len(part)).encode() + b"\r\n" + part + b"\r\n"
    return body, written + b"0\r\n" + b"".join(draw(TRAILERS)) + b"\r\n"


def read(framing: Framing, parts: list[bytes]) -> bytes:
    return b"".join(framing.feed(part) for part in parts if part)


@given(chunked_bodies(), cuts)
def test_chunks_cut_anywhere_come_out_as_the_body(made: tuple[bytes, bytes], at: set[int]) -> None:
    body, written = made
    framing = Chunked()

    assert read(framing, pieces(written, at)) == body
    assert (framing.done, framing.excess) == (True, False)


@given(chunked_bodies(), cuts, st.integers(min_value=1, max_value=12))
def test_chunks_that_end_early_do_not_end_the_body(
    made: tuple[bytes, bytes], at: set[int], missing: int
) -> None:
    body, written = made
    framing = Chunked()
    got = read(framing, pieces(written[:-missing], at))

    assert body.startswith(got)
    assert not framing.done
    framing.eof()
    assert framing.error is not None


@given(chunked_bodies(), cuts)
def test_bytes_after_the_last_chunk_are_not_part_of_the_body(
    made: tuple[bytes, bytes], at: set[int]
) -> None:
    body, written = made
    framing = Chunked()

    assert read(framing, pieces(written + b"HTTP/1.1 200 OK\r\n", at)) == body
    assert (framing.done, framing.excess) == (True, True)


@pytest.mark.parametrize(
    "written",
    [
        b"xyz\r\n",
        b"\r\n",
        b"-1\r\nx",
        b"+1\r\nx\r\n",
        b" 1\r\nx\r\n",
        b"0x1\r\nx\r\n",
        b"1_0\r\n",
        b"1\nx\r\n",
        b"1 1\r\nx\r\n",
        b"1\r\nxy\r\n",
        b"1\r\nx\n\r",
        b"1;" + b"e" * 5000,
        b"f" * 16 + b"\r\n",
        b"0\r\nno trailer\r\n\r\n",
        b"0\r\nx: 1\ny: 2\r\n\r\n",
        b"0\r\nx: " + b"y" * TRAILER_BYTES + b"\r\n",
    ],
    ids=lambda written: repr(written[:20]),
)
@pytest.mark.parametrize("size", [1, 2, 100_000])
def test_chunks_that_cannot_be_read_cut_the_stream(written: bytes, size: int) -> None:
    framing = Chunked()

    read(framing, [written[i : i + size] for i in range(0, len(written), size)])

    assert framing.error is not None
    assert not framing.done


@pytest.mark.parametrize("size", [1, 700, 100_000])
@pytest.mark.parametrize(
    "part",
    [b"x" * 30, b"1\r\n2\r\n3\r\n", b"\r\n0\r\n\r\n", b"\r\n5\r\nhello", b"\r\n\r\n"],
    ids=repr,
)
def test_many_chunks_in_one_read_come_out_whole_whatever_they_hold(part: bytes, size: int) -> None:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part) + n, part + b"y" * n) for n in range(200))
    written = chunks + b"0\r\n\r\n"
    framing = Chunked()
    got = read(framing, [written[i : i + size] for i in range(0, len(written), size)])

    assert got == b"".join(part + b"y" * n for n in range(200))
    assert (framing.done, framing.excess, framing.error) == (True, False, None)


def test_many_chunks_after_the_end_are_not_part_of_the_body() -> None:
    framing = Chunked()

    assert framing.feed(b"2\r\nab\r\n0\r\n\r\n" + b"2\r\ncd\r\n" * 1000) == b"ab"
    assert (framing.done, framing.excess) == (True, True)


@given(st.binary(max_size=60), cuts, st.binary(max_size=3))
def test_a_body_with_a_length_ends_there(body: bytes, at: set[int], after: bytes) -> None:
    framing = Sized(len(body))

    assert read(framing, pieces(body + after, at)) == body
    assert (framing.done, framing.excess) == (True, bool(after))
    framing.eof()


def test_a_body_that_is_shorter_than_its_length_is_cut() -> None:
    framing = Sized(2)

    assert (framing.feed(b"x"), framing.done) == (b"x", False)
    framing.eof()
    assert framing.error is not None


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    framing = ToTheEnd()

    assert (framing.feed(b"x"), framing.feed(b"y"), framing.done) == (b"x", b"y", False)
    framing.eof()
    assert framing.done
