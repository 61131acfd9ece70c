"""HTTP/1.1 as a client: h11 reads requests as they were meant, and responses as we read them."""

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import UpstreamCut
from proxy.upstream.http1 import (
    HEAD_BYTES,
    Chunked,
    Sized,
    ToTheEnd,
    end_of_head,
    request_head,
    response_head,
)

NAMES = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_-]{0,8}", fullmatch=True).map(str.encode)
VALUES = st.from_regex(rb"([!-~\x80-\xff]([ \t!-~]{0,8}[!-~])?)?", fullmatch=True)
FRAMES = frozenset({b"content-length", b"transfer-encoding", b"connection", b"host", b"expect"})
HEADERS = st.lists(st.tuples(NAMES.filter(lambda n: n.lower() not in FRAMES), VALUES), max_size=5)


@given(HEADERS, st.binary(max_size=20))
def test_a_request_is_read_as_it_was_meant(headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    head = request_head("POST", b"/v1/responses?a=%20&b", b"here:1", headers, len(body))
    assert head is not None
    server = h11.Connection(h11.SERVER)
    server.receive_data(head + body)
    request = server.next_event()

    assert isinstance(request, h11.Request)
    assert (request.method, request.target) == (b"POST", b"/v1/responses?a=%20&b")
    assert list(request.headers) == [
        (b"host", b"here:1"),
        *((name.lower(), value) for name, value in headers),
        (b"content-length", b"%d" % len(body)),
    ]
    data = server.next_event()
    assert (bytes(data.data) if isinstance(data, h11.Data) else b"") == body


@pytest.mark.parametrize(
    "header",
    [
        (b"x", b"a\r\nauthorization: b"),
        (b"x", b"a\nb"),
        (b"x", b"a\rb"),
        (b"x", b"a\0b"),
        (b"x: y\r\nz", b"a"),
        (b"", b"a"),
        (b"x y", b"a"),
    ],
    ids=repr,
)
def test_a_header_that_is_not_one_line_is_not_written(header: tuple[bytes, bytes]) -> None:
    assert request_head("POST", b"/", b"here", [header], 0) is None


def test_a_request_without_a_body_states_no_length() -> None:
    assert request_head("GET", b"/models", b"here", [], None) == (
        b"GET /models HTTP/1.1\r\nhost: here\r\n\r\n"
    )


@given(
    st.integers(min_value=200, max_value=599),
    st.sampled_from(["", " ", " OK", " Not Found"]),
    HEADERS,
    st.sampled_from([b"", b" ", b"\t "]),
)
def test_a_response_is_read_as_h11_reads_it(
    status: int, reason: str, headers: list[tuple[bytes, bytes]], space: bytes
) -> None:
    lines = [f"HTTP/1.1 {status}{reason}".encode()]
    lines += [name + b":" + space + value + space for name, value in headers]
    head = b"\r\n".join(lines) + b"\r\n\r\n"
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(head)
    theirs = client.next_event()
    ours = response_head(head, "GET")

    assert isinstance(theirs, h11.Response)
    assert ours is not None
    assert (ours.status, list(ours.headers)) == (theirs.status_code, list(theirs.headers))


@pytest.mark.parametrize(
    ("head", "framing", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5", Sized, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\ncontent-length: 5", Sized, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked", Chunked, True),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 5", Chunked, False),
        (b"HTTP/1.1 200 OK\r\nx: y", ToTheEnd, False),
        (b"HTTP/1.1 204 No Content\r\ncontent-length: 5", Sized, True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: a, Close", Sized, False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\nconnection: keep-alive", Sized, False),
        (b"HTTP/1.1 200 OK\ncontent-length: 5", Sized, True),
    ],
)
def test_a_head_says_where_its_body_ends_and_whether_another_may_follow(
    head: bytes, framing: type, reusable: bool
) -> None:
    found = response_head(head + b"\r\n\r\n", "POST")

    assert found is not None
    assert (type(found.framing), found.reusable) == (framing, reusable)


def test_an_answer_to_head_has_no_body() -> None:
    found = response_head(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", "HEAD")

    assert found is not None
    assert found.framing.done


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"HTTP/2 200 OK",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 2000 OK",
        b"http/1.1 200 OK",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1 200 O\0K",
        b"HTTP/1.1 101 Switching Protocols",
        b"HTTP/1.1 200 OK\r\nno colon",
        b"HTTP/1.1 200 OK\r\nx : y",
        b"HTTP/1.1 200 OK\r\nx: y\r\n folded",
        b"HTTP/1.1 200 OK\r\n: y",
        b"HTTP/1.1 200 OK\r\nx: y\0",
        b"HTTP/1.1 200 OK\r\nx: y\rz: w",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5_0",
        b"HTTP/1.1 200 OK\r\ncontent-length:",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked",
    ],
    ids=repr,
)
def test_a_head_that_can_be_read_in_two_ways_is_not_read(head: bytes) -> None:
    with pytest.raises(UpstreamCut):
        response_head(head + b"\r\n\r\n", "POST")


def test_an_interim_answer_is_skipped() -> None:
    assert response_head(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", "POST") is None


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b"", 0),
        (b"HTTP/1.1 200 OK\r\n", 0),
        (b"HTTP/1.1 200 OK\r\n\r", 0),
        (b"HTTP/1.1 200 OK\r\n\r\nbody", 19),
        (b"HTTP/1.1 200 OK\n\nbody", 17),
    ],
)
def test_a_head_ends_at_an_empty_line(data: bytes, end: int) -> None:
    assert end_of_head(data) == end


@pytest.mark.parametrize("after", [b"", b"\r\n\r\n"])
def test_a_head_has_a_limit(after: bytes) -> None:
    whole = b"HTTP/1.1 200 OK\r\nx: "
    assert end_of_head(whole + bytes(HEAD_BYTES - len(whole) - 4) + b"\r\n\r\n") == HEAD_BYTES
    with pytest.raises(UpstreamCut):
        end_of_head(whole + bytes(HEAD_BYTES) + after)
