"""The real server in this process: hypercorn on a free port, and what `/status` says of it."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from harness.wire.client import HOST, WireAnswer, WireClient, request
from harness.wire.websocket import WebSocket, open_socket
from proxy.config.load import Config, load
from proxy.process.serve import serve
from proxy.runtime import Runtime

Status = dict[str, Any]
Sections = Mapping[str, Mapping[str, object]]


@dataclass(slots=True, kw_only=True, eq=False)
class Proxy:
    """A running proxy, and the connections that a test has opened to it."""

    port: int
    runtime: Runtime | None = None
    opened: AsyncExitStack = field(default_factory=AsyncExitStack)
    over: trio.Event = field(default_factory=trio.Event)
    """Serving has returned."""

    async def connect(self, *, receive_bytes: int | None = None) -> WireClient:
        """Open a connection of its own, which is closed with the proxy at the latest."""
        sock = trio.socket.socket()
        if receive_bytes is not None:
            sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_bytes)
        await sock.connect((HOST, self.port))
        stream = trio.SocketStream(sock)
        await self.opened.enter_async_context(stream)
        return WireClient(stream)

    async def websocket(self, headers: Mapping[str, str] | None = None) -> WebSocket:
        return await self.websocket_on(await self.connect(), headers)

    async def websocket_on(
        self, client: WireClient, headers: Mapping[str, str] | None = None
    ) -> WebSocket:
        return await open_socket(client, headers or {})

    async def ask(self, text: bytes, method: str = "POST") -> WireAnswer:
        """Send one request on a connection of its own, and hang up after the answer."""
        client = await self.connect()
        await client.send(text)
        answer = await client.answer(method)
        await client.hang_up()
        return answer

    async def get(self, target: str) -> WireAnswer:
        return await self.ask(request("GET", target, {"connection": "close"}), "GET")

    async def status(self) -> Status:
        found: Status = (await self.get("/status")).json
        return found

    async def until(self, fits: Callable[[Status], bool], seconds: float = 1.0) -> Status:
        """Return the first status that fits: it is not announced, so ask again and again."""
        found: Status = {}
        with trio.move_on_after(seconds):
            client = await self.connect()
            while not found or not fits(found):
                await client.send(request("GET", "/status"))
                found = (await client.answer("GET")).json
            await client.hang_up()
            return found
        raise AssertionError(f"not so within {seconds} s: {found}")

    async def until_idle(self, seconds: float = 1.0) -> Status:
        """Return the first status in which nothing is held."""
        return await self.until(lambda found: not held(found), seconds)


def held(status: Status) -> dict[str, int]:
    """Return what is still held, by name."""
    figures = {
        "lanes": status["lanes"]["active"],
        "lane bytes": status["lanes"]["retained_bytes"],
        "turns": status["turns"]["active"],
        "memory": status["memory"]["held_bytes"],
        "websockets": status["websockets"]["active"],
    }
    return {name: figure for name, figure in figures.items() if figure}


@asynccontextmanager
async def open_proxy(upstream: str, **sections: Mapping[str, object]) -> AsyncIterator[Proxy]:
    """A proxy whose configuration is the defaults and `sections`."""
    flags: dict[str, dict[str, object]] = {name: dict(keys) for name, keys in sections.items()}
    flags["server"] = {"port": 0, **flags.get("server", {})}
    flags["upstream"] = {"url": upstream, **flags.get("upstream", {})}
    with tempfile.TemporaryDirectory(prefix="turnlane-") as home:
        config = load(None, {"TURNLANE_HOME": str(Path(home) / "home")}, flags)
        said: list[str] = []
        ready, over = _Ready(), trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_serve, config, said.append, ready, over)
            await ready.event.wait()
            port = int(said[0].rpartition(":")[2])
            proxy = Proxy(port=port, runtime=ready.runtime, over=over)
            async with proxy.opened:
                yield proxy
            nursery.cancel_scope.cancel()


class _Ready:
    """Hears of the runtime once it serves."""

    def __init__(self) -> None:
        self.event = trio.Event()
        self.runtime: Runtime | None = None

    def started(self, value: Runtime | None = None) -> None:
        self.runtime = value
        self.event.set()


async def _serve(
    config: Config,
    say: Callable[[str], None],
    ready: _Ready,
    over: trio.Event,
) -> None:
    await serve(config, say, task_status=ready)
    over.set()
