"""One process follows another on the same port: no client is refused, and every turn finishes."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest
import trio

from harness.wire.client import HOST, CutError, WireClient, request
from harness.wire.upstream import Received, ScriptedUpstream, at_once, on_go
from harness.wire.websocket import Closed, WebSocket
from proxy.journal.store import newest
from tests.e2e.process import open_child, run
from tests.e2e.proxy import Proxy
from tests.testkit.wire import create

pytestmark = pytest.mark.load  # processes of its own: seconds each

SECONDS = 40
SESSIONS = 32
PROBES = 4
EVENT_SECONDS = 0.05
KEYS: Final = MappingProxyType({"KEY_A": "sk-a", "KEY_B": "sk-b", "KEY_C": "sk-c"})
ACCOUNTS = "".join(f'[accounts.{key[-1:].lower()}]\nkey = "env:{key}"\n' for key in KEYS)


@dataclass(slots=True, eq=False)
class Probes:
    """What clients found that kept connecting."""

    answers: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    async def run(self, port: int) -> None:
        while True:
            try:
                async with await trio.open_tcp_stream(HOST, port) as stream:
                    client = WireClient(stream)
                    await client.send(request("GET", "/readyz", {"connection": "close"}))
                    self.answers.append((await client.answer("GET")).status)
            except (OSError, CutError, trio.BrokenResourceError) as error:
                self.refused.append(repr(error))


@asynccontextmanager
async def probing(port: int) -> AsyncIterator[Probes]:
    probes = Probes()
    async with trio.open_nursery() as nursery:
        for _ in range(PROBES):
            nursery.start_soon(probes.run, port)
        yield probes
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def deadline() -> AsyncIterator[None]:
    with trio.fail_after(SECONDS):
        yield


async def streaming(sent: Received) -> None:
    """Events until the test says so."""
    await sent.created()
    while not sent.go.is_set():
        await sent.event("response.output_text.delta", delta="x" * 100)
        with trio.move_on_after(EVENT_SECONDS):
            await sent.go.wait()
    await sent.completed()


async def begun(proxy: Proxy, thread: str) -> WebSocket:
    """A socket in mid-stream."""
    opened = await proxy.websocket()
    await opened.send(create(thread))
    await opened.until("response.created")
    return opened


async def assert_finishes(opened: WebSocket) -> None:
    """The turn ends as it should, then its socket is sent away."""
    assert (await opened.until("response.completed"))["response"]["status"] == "completed"
    assert await opened.event() == Closed(1001)
    await opened.client.hang_up()


async def turn(proxy: Proxy, thread: str) -> None:
    opened = await begun(proxy, thread)
    await opened.until("response.completed")
    await opened.client.hang_up()


def keys_by_thread(upstream: ScriptedUpstream) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for sent in upstream.sent:
        found.setdefault(sent.headers["thread-id"], set()).add(sent.headers["authorization"])
    return found


def with_accounts(path: Path, rest: str = "") -> Sequence[str]:
    file = path / "turnlane.toml"
    file.write_text(ACCOUNTS + rest)
    return ("--config", str(file))


async def test_sessions_stream_on_while_the_next_process_takes_over(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    home, config = tmp_path / "home", with_accounts(tmp_path)
    async with AsyncExitStack() as children, deadline():
        start = partial(open_child, home, upstream.url, *config, variables=KEYS)
        first = await children.enter_async_context(start())
        idle = await first.proxy.websocket()
        upstream.script = streaming
        sockets = [await begun(first.proxy, f"t{number}") for number in range(SESSIONS)]
        async with probing(first.port) as probes:
            second = await children.enter_async_context(start("--take-over", port=first.port))
            assert await idle.event() == Closed(1001)
            await idle.client.hang_up()
            during = await second.proxy.status()
            late = [await begun(second.proxy, f"late{number}") for number in range(4)]
            upstream.release()
            for opened in sockets:
                await assert_finishes(opened)
            assert await first.wait() == 0
        for opened in late:
            await opened.until("response.completed")
        upstream.script = at_once
        for number in range(SESSIONS):
            await turn(second.proxy, f"t{number}")
        after = await second.proxy.status()
        assert await second.stop() == 0

    assert (during["pid"], [one["pid"] for one in during["draining"]]) == (second.pid, [first.pid])
    assert (after["pid"], after["draining"]) == (second.pid, [])
    assert (probes.refused, set(probes.answers)) == ([], {200})
    assert after["outcomes"] == {"completed": SESSIONS + 4}
    ended = [record.outcome.value for _, record in newest(home, 1000)]
    assert ended == ["completed"] * (2 * SESSIONS + 4)
    assert all(len(keys) == 1 for keys in keys_by_thread(upstream).values())
    assert not list(home.glob("draining-*"))


async def test_with_a_service_managers_listener_the_next_process_starts_at_once(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    upstream.script = on_go
    with socket.create_server((HOST, 0), backlog=1024) as listening:
        async with AsyncExitStack() as children, deadline():
            start = partial(open_child, home, upstream.url, listening=listening)
            first = await children.enter_async_context(start())
            assert first.port == listening.getsockname()[1]
            stranger = await run(["serve", "--port", "0", "--take-over"], home)
            assert stranger.returncode == 2
            assert "service manager" in stranger.stderr.decode()
            idle, busy = await first.proxy.websocket(), await begun(first.proxy, "busy")
            async with probing(first.port) as probes:
                first.signal()
                assert await idle.event() == Closed(1001)
                await idle.client.hang_up()
                second = await children.enter_async_context(start())
                during = await second.proxy.status()
                upstream.release()
                await assert_finishes(busy)
                assert await first.wait() == 0
            assert await second.stop() == 0

    assert (during["pid"], [one["pid"] for one in during["draining"]]) == (second.pid, [first.pid])
    assert probes.refused == []
    assert set(probes.answers) <= {200, 503}  # accepted just before the drain, asked just after
    assert probes.answers[-1] == 200


async def test_a_process_that_starts_while_another_drains_takes_over_without_being_told_to(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    upstream.script = on_go
    async with AsyncExitStack() as children, deadline():
        first = await children.enter_async_context(open_child(home, upstream.url))
        idle = await first.proxy.websocket()
        busy = await begun(first.proxy, "busy")
        first.signal()
        assert await idle.event() == Closed(1001)
        assert (await first.proxy.get("/readyz")).status == 503
        second = await children.enter_async_context(open_child(home, upstream.url, port=first.port))
        assert (await second.proxy.get("/readyz")).status == 200
        await busy.send(create("busy"))
        refused = await busy.event()
        upstream.release()
        await assert_finishes(busy)
        await idle.client.hang_up()

        assert refused["headers"] == {"retry-after": "1", "x-turnlane-refusal": "draining"}
        assert await first.wait() == 0
        assert (await second.proxy.status())["draining"] == []
        assert await second.stop() == 0


async def test_a_next_process_that_cannot_start_changes_nothing(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    async with open_child(home, upstream.url) as child, deadline():
        opened = await child.proxy.websocket()
        broken = with_accounts(tmp_path, f'[accounts.d]\nkey = "file:{tmp_path}/none"\n')
        failed = await run(["serve", "--port", "0", "--take-over", *broken], home, **KEYS)

        assert failed.returncode == 2
        assert "accounts.d" in failed.stderr.decode()
        status = await child.proxy.status()
        assert (status["state"], status["draining"]) == ("ready", [])
        await opened.send(create("t"))
        await opened.until("response.completed")
        await opened.client.hang_up()
        assert await child.stop() == 0


async def test_a_process_with_another_address_takes_over_the_home_alone(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    async with AsyncExitStack() as children, deadline():
        first = await children.enter_async_context(open_child(home, upstream.url))
        second = await children.enter_async_context(
            open_child(home, upstream.url, "--take-over", port=port)
        )

        assert second.port == port != first.port
        assert await first.wait() == 0
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream(HOST, first.port)
        assert await second.stop() == 0
