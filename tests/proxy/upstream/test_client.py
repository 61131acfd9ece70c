"""The upstream over HTTP: where a send goes, what its failures are, which connections are kept."""

import pytest
import trio
from hypothesis import given
from trio.testing import MockClock

from proxy.config.settings import UpstreamSettings
from proxy.errors import UpstreamCut
from proxy.upstream.client import POST_BYTES, HttpUpstream, JsonPost
from proxy.upstream.interface import Failure, UpstreamReply, UpstreamRequest
from proxy.upstream.url import Origin
from tests.testkit.connections import Connecting, FakeConnection, Said, connection, whole
from tests.testkit.cutting import cuts, pieces
from tests.testkit.upstream import FakeUpstream, answer

SETTINGS = UpstreamSettings(url="http://here/v1")
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def request(
    *headers: tuple[bytes, bytes],
    query: bytes = b"",
    base_url: str | None = None,
    body: bytes = b"{}",
) -> UpstreamRequest:
    return UpstreamRequest(base_url=base_url, headers=headers, query=query, body=body)


def upstream_of(*made: FakeConnection | Exception | float) -> HttpUpstream:
    return HttpUpstream(SETTINGS, connect=Connecting(*made))


async def rest(reply: UpstreamReply) -> bytes:
    body = b""
    while data := await reply.read():
        body += data
    return body


async def send(upstream: HttpUpstream, asked: UpstreamRequest | None = None) -> bytes | Failure:
    async with upstream.open(asked or request()) as reply:
        return reply if isinstance(reply, Failure) else await rest(reply)


@pytest.mark.parametrize(
    ("headers", "origin", "line"),
    [
        ([], Origin(True, "api.openai.com", 443), b"POST /v1/responses"),
        (
            [(b"ChatGPT-Account-ID", b"a")],
            Origin(True, "chatgpt.com", 443),
            b"POST /backend-api/codex/responses",
        ),
    ],
)
async def test_without_a_configured_url_a_send_goes_where_its_login_belongs(
    headers: list[tuple[bytes, bytes]], origin: Origin, line: bytes
) -> None:
    answering = connection(whole(b"a"), whole(b"b"))
    connecting = Connecting(answering)
    upstream = HttpUpstream(UpstreamSettings(), connect=connecting)

    assert await send(upstream, request(*headers)) == b"a"
    assert await send(upstream, request(*headers, query=b"a='1'&b=%7e")) == b"b"
    assert connecting.origins == [origin]
    assert connecting.tls == [upstream.tls()]
    assert [sent.partition(b" HTTP/1.1\r\nhost: ")[0] for sent in answering.sent] == [
        line,
        line + b"?a='1'&b=%7e",
    ]
    upstream.close()


async def test_an_accounts_own_url_goes_before_the_configured_one() -> None:
    connecting = Connecting(connection(whole(b"a")), connection(whole(b"b")))
    upstream = HttpUpstream(SETTINGS, connect=connecting)
    await send(upstream)

    assert await send(upstream, request(base_url="http://there:8080")) == b"b"
    assert connecting.origins == [Origin(False, "here", 80), Origin(False, "there", 8080)]
    assert connecting.tls == [None, None]
    upstream.close()


@pytest.mark.parametrize(
    "asked",
    [
        request((b"x", b"a\r\nauthorization: b")),
        request(query=b"a b"),
        request(base_url="ftp://there"),
    ],
)
async def test_what_http_cannot_carry_is_not_sent(asked: UpstreamRequest) -> None:
    failure = await send(upstream_of(), asked)

    assert isinstance(failure, Failure)
    assert (failure.status, failure.code, failure.retriable) == (502, "upstream_unusable", False)


@pytest.mark.parametrize(
    ("made", "status", "code", "words"),
    [
        (OSError("refused"), 502, "upstream_unreachable", "refused"),
        (trio.BrokenResourceError(), 502, "upstream_unreachable", "BrokenResourceError"),
        (3600.0, 504, "upstream_timeout", "no connection within 10 s"),
        (connection(b""), 502, "upstream_unreachable", "without an answer"),
        (connection(b"HTTP/1.1 200", b""), 502, "upstream_unreachable", "without an answer"),
        (connection(trio.BrokenResourceError("reset")), 502, "upstream_unreachable", "reset"),
        (connection(b"", broken=True), 502, "upstream_unreachable", "without an answer"),
        (connection(b"SSH-2.0\r\n\r\n"), 502, "upstream_unreachable", "not HTTP"),
    ],
)
async def test_a_send_without_a_reply_is_a_failure_of_its_kind(
    made: FakeConnection | Exception | float,
    status: int,
    code: str,
    words: str,
    autojump_clock: MockClock,
) -> None:
    failure = await send(upstream_of(made))

    assert isinstance(failure, Failure)
    assert (failure.status, failure.code, failure.retriable) == (status, code, True)
    assert words in failure.message
    assert not isinstance(made, FakeConnection) or made.closed


async def test_an_answer_to_half_a_request_counts_and_ends_its_connection() -> None:
    one = connection(whole(b"too much"), broken=True)

    assert await send(upstream_of(one)) == b"too much"
    assert one.closed


@given(cuts)
def test_any_cutting_of_an_answer_reads_alike_and_keeps_the_connection(at: set[int]) -> None:
    stream = (
        b"HTTP/1.1 103 Early Hints\r\n\r\n"
        + CHUNKED
        + b"5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\nx-sum: 1\r\n\r\n"
    )
    upstream = upstream_of(one := connection(*pieces(stream, at), whole(b"again")))

    async def twice() -> list[bytes | Failure]:
        return [await send(upstream), await send(upstream)]

    assert trio.run(twice) == [b"hello, world", b"again"]
    assert len(one.sent) == 2


async def test_one_read_of_the_socket_is_one_read_of_the_reply() -> None:
    chunks = b"".join(b"2\r\n%02d\r\n" % number for number in range(50))
    upstream = upstream_of(connection(CHUNKED + chunks, chunks + b"0\r\n\r\n"))

    async with upstream.open(request()) as reply:
        assert not isinstance(reply, Failure)
        assert [len(await reply.read()) for _ in range(3)] == [100, 100, 0]
    upstream.close()


@pytest.mark.parametrize(
    "said",
    [
        [b"HTTP/1.1 200 OK\r\n\r\nhello", b""],
        [b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello"],
        [whole(b"hello", b"connection: close")],
        [whole(b"hello") + b"more"],
        [CHUNKED + b"5\r\nhello\r\n0\r\n\r\nmore"],
    ],
)
async def test_a_connection_in_doubt_is_not_used_again(said: list[Said]) -> None:
    upstream = upstream_of(one := connection(*said), connection(whole(b"again")))

    assert [await send(upstream), await send(upstream)] == [b"hello", b"again"]
    assert one.closed
    upstream.close()


async def test_a_reply_that_is_left_early_takes_its_connection_along() -> None:
    upstream = upstream_of(one := connection(CHUNKED, b"5\r\nhello\r\n"))
    async with upstream.open(request()) as reply:
        assert not isinstance(reply, Failure)
        assert await reply.read() == b"hello"

    assert one.closed


@pytest.mark.parametrize("said", [[], [CHUNKED], [CHUNKED, b"5\r\nhel"]])
async def test_a_cancelled_send_closes_its_connection(
    said: list[Said], autojump_clock: MockClock
) -> None:
    upstream = upstream_of(one := connection(*said, trio.Event()))
    with trio.move_on_after(1) as scope:
        await send(upstream)

    assert scope.cancelled_caught
    assert one.closed


@pytest.mark.parametrize("then", [b"xyz\r\n", b"", trio.BrokenResourceError("reset")], ids=repr)
async def test_what_came_before_a_body_breaks_is_read_before_the_cut(then: Said) -> None:
    upstream = upstream_of(one := connection(CHUNKED + b"5\r\nhello\r\n", then))
    async with upstream.open(request()) as reply:
        assert not isinstance(reply, Failure)
        assert await reply.read() == b"hello"
        with pytest.raises(UpstreamCut):
            await reply.read()

    assert one.closed


async def test_sends_that_follow_each_other_share_a_connection_and_others_do_not() -> None:
    one, two = connection(whole(b"a"), whole(b"b")), connection(whole(b"c"))
    upstream = upstream_of(one, two)

    assert await send(upstream) == b"a"
    async with upstream.open(request()) as reply:
        assert await send(upstream) == b"c"
        assert not isinstance(reply, Failure)
        assert await rest(reply) == b"b"
    upstream.close()
    assert (one.closed, two.closed) == (True, True)


async def test_an_origin_with_a_proxy_is_sent_to_through_it() -> None:
    other = FakeUpstream()
    other.will(answer())
    upstream = HttpUpstream(
        SETTINGS,
        connect=Connecting(connection(whole(b"direct"))),
        proxied=other,
        has_proxy=lambda base: base.origin.host == "there",
    )

    assert await send(upstream) == b"direct"
    await send(upstream, request((b"chatgpt-account-id", b"a"), base_url="http://there"))
    assert [sent.request.base_url for sent in other.sent] == ["http://there"]
    upstream.close()


# POSTs of JSON.


URL = "http://auth/oauth/token"


async def test_a_post_sends_json_returns_status_and_body_and_keeps_no_connection() -> None:
    one = connection(b"HTTP/1.1 401 No\r\ncontent-length: 2\r\n\r\n{}")
    upstream = upstream_of(one)

    assert await JsonPost(upstream)(URL + "?a=1", {"b": "2"}) == (401, b"{}")
    head, _, body = one.sent[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /oauth/token?a=1 HTTP/1.1\r\nhost: auth\r\n")
    assert {b"content-type: application/json", b"connection: close"} <= set(head.splitlines())
    assert body == b'{"b":"2"}'
    upstream.close()


@pytest.mark.parametrize(
    ("url", "made", "code"),
    [
        (URL, connection(b""), "upstream_unreachable"),
        (URL, OSError("refused by secret"), "upstream_unreachable"),
        (URL, connection(CHUNKED, b""), "upstream_cut"),
        ("no url", OSError(), "upstream_unusable"),
    ],
    ids=repr,
)
async def test_a_post_without_an_answer_is_an_os_error_that_tells_no_secret(
    url: str, made: FakeConnection | OSError, code: str
) -> None:
    with pytest.raises(OSError, match=rf"^{code}$"):
        await JsonPost(upstream_of(made))(url, {"token": "secret"})


async def test_an_endless_answer_to_a_post_does_not_fill_the_memory() -> None:
    endless = connection(b"HTTP/1.1 200 OK\r\n\r\n", *([bytes(POST_BYTES // 2)] * 3))

    status, body = await JsonPost(upstream_of(endless))(URL, {})

    assert (status, len(body)) == (200, POST_BYTES)
    assert endless.closed
