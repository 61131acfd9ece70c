"""Bytes at random in whatever the server parses: no fault of ours, nothing held, others served."""

from __future__ import annotations

import random
from typing import Final

import pytest
import trio

from harness.wire.client import HOST, WireClient
from harness.wire.upstream import ScriptedUpstream
from harness.wire.websocket import HANDSHAKE, frame
from tests.e2e.proxy import Proxy
from tests.testkit.wire import bystander

SECONDS = 60
AT_ONCE: Final = 8
FEW, MANY = 400, 5_000

NAMES: Final = (
    "connection",
    "upgrade",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-protocol",
    "sec-websocket-version",
    "host",
    "origin",
    "content-length",
    "transfer-encoding",
    "content-encoding",
    "expect",
    "http2-settings",
    "te",
    "thread-id",
)
WORDS: Final = (
    "websocket",
    "Upgrade",
    "keep-alive",
    "close",
    "h2c",
    "chunked",
    "gzip",
    "100-continue",
    "13",
    "7",
    "0",
    "99999999999999999999",
    "127.0.0.1",
    "localhost",
    "[::1]",
    "permessage-deflate; client_max_window_bits",
    ",",
    ";",
    "=",
    '"',
    " ",
    "\t",
    "",
)
METHODS: Final = ("GET", "get", "POST", "HEAD", "OPTIONS", "CONNECT", "TRACE", "PRI", "\xe9")
TARGETS: Final = (
    "/v1/responses",
    "/healthz",
    "/status",
    "*",
    "//",
    "/%ff",
    "/v1/models?\xff",
    "x:1",
)
VERSIONS: Final = ("1.1", "1.1", "1.1", "1.0", "2.0", "0.9", "9.9")


def _value(dice: random.Random) -> str:
    if dice.random() < 0.5:
        return "".join(dice.choice(WORDS) for _ in range(dice.randint(1, 4)))
    return "".join(chr(dice.randint(1, 255)) for _ in range(dice.randint(0, 12)))


def _request(dice: random.Random) -> bytes:
    """A request of which some part is random; half of them began as a good handshake."""
    fields: list[tuple[str, str]] = [("host", HOST)]
    if dice.random() < 0.5:
        fields += HANDSHAKE.items()
    for _ in range(dice.randint(1, 3)):
        name = dice.choice(NAMES)
        if dice.random() < 0.8:
            fields = [field for field in fields if field[0] != name]
        fields.append((name, _value(dice)))
    line = f"{dice.choice(METHODS)} {dice.choice(TARGETS)} HTTP/{dice.choice(VERSIONS)}"
    if dice.random() < 0.6:
        line = "GET /v1/responses HTTP/1.1"
    head = "\r\n".join([line, *(f"{name}: {text}" for name, text in fields), "", ""])
    return head.encode("latin-1") + _tail(dice)


def _tail(dice: random.Random) -> bytes:
    match dice.randint(0, 5):
        case 0:
            return dice.randbytes(dice.randint(1, 200))
        case 1:
            return frame(dice.randint(0, 15), dice.randbytes(dice.randint(0, 200)), reserved=0)
        case 2:
            return b'{"stream":true}'
        case 3:
            return b"5\r\nhello\r\n0\r\n\r\n"
        case _:
            return b""


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("count", [FEW // 2, pytest.param(MANY, marks=pytest.mark.load)])
async def test_random_requests_do_no_harm(
    proxy: Proxy, upstream: ScriptedUpstream, seed: int, count: int
) -> None:
    dice = random.Random(seed)

    with trio.fail_after(SECONDS):
        async with bystander(await proxy.connect(), upstream):
            for _ in range(0, count, AT_ONCE):
                async with trio.open_nursery() as nursery:
                    for _ in range(AT_ONCE):
                        client = await proxy.connect()
                        nursery.start_soon(_try, client, _request(dice), dice.random())
        status = await proxy.until_idle()

    assert "broken" not in status["outcomes"]


async def _try(client: WireClient, text: bytes, whim: float) -> None:
    """Send it and leave: at once, after the first bytes, or by closing our side."""
    try:
        await client.send(text)
        if whim < 0.4:
            await client.stream.send_eof()
            await client.wait_closed()
        elif whim < 0.7:
            with trio.move_on_after(0.05):
                await client.stream.receive_some()
    except trio.BrokenResourceError:
        pass
    if whim > 0.9:
        await client.reset()
    await client.hang_up()


@pytest.mark.parametrize("seed", [3])
@pytest.mark.parametrize("count", [FEW // 4, pytest.param(MANY // 4, marks=pytest.mark.load)])
async def test_random_frames_do_no_harm(proxy: Proxy, seed: int, count: int) -> None:
    dice = random.Random(seed)
    with trio.fail_after(SECONDS):
        for _ in range(count):
            socket = await proxy.websocket()
            text = b"".join(_frame(dice) for _ in range(dice.randint(1, 5)))
            await _try(socket.client, text, dice.random())
        status = await proxy.until_idle()

    assert "broken" not in status["outcomes"]


def _frame(dice: random.Random) -> bytes:
    payload = dice.choice(
        [dice.randbytes(dice.randint(0, 130)), b'{"type":"response.create"}', b"{}", b"\x03\xe8"]
    )
    if dice.random() < 0.2:
        return payload
    return frame(
        dice.choice([0, 1, 1, 1, 2, 8, 9, 10, dice.randint(0, 15)]),
        payload,
        final=dice.random() < 0.8,
        masked=dice.random() < 0.9,
        reserved=dice.choice([0, 0, 0, 0, 0, 4, 7]),
    )
