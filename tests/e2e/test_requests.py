"""Requests of every kind on a real connection: routes, methods, targets, headers, origins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest
import trio

from harness.wire.client import request
from harness.wire.upstream import ScriptedUpstream
from harness.wire.websocket import HANDSHAKE, handshake, upgrade
from tests.e2e.proxy import Proxy
from tests.testkit.wire import create, post

SECONDS = 10
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)
H2C: Final = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c"}
SETTINGS: Final = {**H2C, "http2-settings": "AAMAAABkAARAAAAAAAIAAAAA"}


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        (PREFACE, 505, "bad_request"),
        (request("GET", "/healthz", H2C), 505, "bad_request"),
        (request("GET", "/healthz", SETTINGS), 505, "bad_request"),
        (request("POST", "/v1/responses", SETTINGS, b'{"stream":true}'), 505, "bad_request"),
        (request("POST", "/v1/responses", SETTINGS, b"x" * 5_000_000), 505, "bad_request"),
        (request("TRACE", "/healthz"), 405, "method_not_allowed"),
        (request("DELETE", "/v1/responses"), 405, "method_not_allowed"),
        (request("GET", "/v1/responses"), 405, "method_not_allowed"),
        (request("POST", "/healthz", body=b"x" * 1_000_000), 405, "method_not_allowed"),
        (request("CONNECT", "example.com:443"), 404, "not_found"),
        (request("GET", "/nothing"), 404, "not_found"),
        (request("GET", "http://127.0.0.1/healthz"), 404, "not_found"),
        (request("POST", "/v1/completions", body=b"{}"), 404, "not_found"),
        (request("GET", "/healthz", {"x": "y" * 70_000}), 431, "bad_request"),
        (request("GET", "/healthz", {f"x{n}": "y" * 100 for n in range(700)}), 431, "bad_request"),
        (b"GET /" + b"y" * 200_000 + b" HTTP/1.1\r\n\r\n", 431, "bad_request"),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400, "bad_request"),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 403, "foreign_origin"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300), 400, "bad_request"),
        (b"\r\n\r\nhello\r\n\r\n", 400, "bad_request"),
        (post({"content-length": "1, 2"}), 400, "bad_request"),
        (post({"content-length": "-1"}), 400, "bad_request"),
        (post({"transfer-encoding": "gzip"}), 501, "bad_request"),
        (post({"transfer-encoding": "chunked"}, b"xyz\r\n\r\n"), 400, "bad_request"),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, bytes) else str(value),
)
async def test_what_cannot_be_served_is_told_so_with_a_body_that_says_why(
    proxy: Proxy, upstream: ScriptedUpstream, text: bytes, status: int, code: str
) -> None:
    with trio.fail_after(SECONDS):
        client = await proxy.connect()
        await client.send(text)
        answer = await client.answer()

        assert (answer.status, answer.code) == (status, code)
        assert answer.json["error"]["message"]
        assert await client.wait_closed() == b""
        await client.hang_up()
        await proxy.until_idle()
    assert upstream.sent == []


@pytest.mark.parametrize("target", ["/healthz", "/readyz", "/status", "/nothing"])
async def test_head_gets_no_body_and_the_connection_goes_on_as_announced(
    proxy: Proxy, target: str
) -> None:
    with trio.fail_after(SECONDS):
        client = await proxy.connect()
        await client.send(request("HEAD", target))
        answer = await client.answer("HEAD")
        assert (answer.body, int(answer.headers["content-length"]) > 0) == (b"", True)
        if answer.headers.get("connection") == "close":
            assert await client.wait_closed() == b""
        else:
            await client.send(request("GET", "/healthz"))
            assert (await client.answer("GET")).status == 200


async def test_http_1_0_gets_its_stream_up_to_the_end_of_the_connection(proxy: Proxy) -> None:
    with trio.fail_after(SECONDS):
        client = await proxy.connect()
        await client.send(post().replace(b"HTTP/1.1", b"HTTP/1.0"))
        answer = await client.answer()

        assert b"response.completed" in answer.body
        assert await client.wait_closed() == b""


async def test_ten_thousand_bytes_of_headers_are_fine(
    proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    metadata = {"x-codex-turn-metadata": "m" * 10_000}
    with trio.fail_after(SECONDS):
        client = await proxy.connect()
        await client.send(post(metadata))
        assert (await client.answer()).status == 200
        socket = await proxy.websocket(metadata)
        await socket.send(create("t"))
        await socket.until("response.completed")

    assert upstream.sent[0].headers["x-codex-turn-metadata"] == "m" * 10_000


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://elsewhere.example"}, {"origin": "\xff"}, {"host": "elsewhere.example"}],
    ids=repr,
)
async def test_a_foreign_page_spends_nothing_over_any_transport(
    proxy: Proxy, upstream: ScriptedUpstream, headers: Mapping[str, str]
) -> None:
    texts = [
        post({**headers, "content-type": "text/plain"}),
        request("GET", "/status", headers),
        request("GET", "/v1/models", headers),
        request("OPTIONS", "/v1/responses", headers),
        handshake(headers),
    ]
    with trio.fail_after(SECONDS):
        for text in texts:
            answer = await proxy.ask(text)
            assert (answer.status, answer.code) == (403, "foreign_origin"), text
            assert "access-control-allow-origin" not in answer.headers

    assert upstream.sent == []


@pytest.mark.parametrize(
    "extensions",
    [
        "\xff",
        "permessage-deflate",
        "permessage-deflate; client_max_window_bits=abc",
        "permessage-deflate; server_max_window_bits=0",
        "permessage-deflate; ; ;,,,=",
    ],
)
async def test_no_extension_is_negotiated_however_it_is_offered(
    proxy: Proxy, extensions: str
) -> None:
    with trio.fail_after(SECONDS):
        head = await upgrade(await proxy.connect(), {"sec-websocket-extensions": extensions})
        assert head.status == 101
        assert "sec-websocket-extensions" not in head.headers
        socket = await proxy.websocket({"sec-websocket-extensions": extensions})
        await socket.send(create("t"))
        await socket.until("response.completed")


@pytest.mark.parametrize(
    "change",
    [
        {"sec-websocket-version": "12"},
        {"sec-websocket-version": "\xff"},
        {"sec-websocket-key": None},
        {"sec-websocket-protocol": "\xff"},
        {"connection": "upgrade, \xff"},
        {"upgrade": "websocket\x1c"},
        {"upgrade": "websocket/\xff"},
    ],
    ids=repr,
)
async def test_a_broken_handshake_is_answered_and_leaves_nothing(
    proxy: Proxy, change: Mapping[str, str | None]
) -> None:
    fields = {**HANDSHAKE, **change}
    text = request("GET", "/v1/responses", {k: v for k, v in fields.items() if v is not None})
    with trio.fail_after(SECONDS):
        client = await proxy.connect()
        await client.send(text)
        answer = await client.answer()
        assert answer.status in (400, 405)
        assert answer.json["error"]["message"]
        assert await client.wait_closed() == b""
        await client.hang_up()
        await proxy.until_idle()
