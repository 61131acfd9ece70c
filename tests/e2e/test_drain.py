"""SIGTERM: idle connections go at once, busy ones after their turn, and the port is free again."""

from __future__ import annotations

import resource
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from harness.wire.client import CutError, WireClient
from harness.wire.upstream import ScriptedUpstream, on_go
from harness.wire.websocket import Closed, WebSocket, upgrade
from tests.e2e.process import Child, open_child
from tests.e2e.proxy import Proxy, open_proxy
from tests.testkit.wire import create, endless, named, post

pytestmark = pytest.mark.load  # large bodies, real drains and stalls: seconds each

SECONDS = 20
SOON_SECONDS = 5
"""Half of a drain: generous for what happens at once in a process of its own."""


def _with_drain(path: Path, seconds: float) -> Sequence[str]:
    file = path / "turnlane.toml"
    file.write_text(f"[server]\ndrain_seconds = {seconds}\n")
    return ("--config", str(file))


async def _begun(child: Child, upstream: ScriptedUpstream, thread: str) -> WireClient:
    """A client in mid-stream."""
    client = await child.proxy.connect()
    await client.send(post(named(thread)))
    await upstream.wait_sent(len(upstream.sent) + 1)
    await client.head()
    return client


async def test_a_drain_lets_go_of_what_is_idle_and_finishes_what_runs(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with open_child(tmp_path / "home", upstream.url) as child:
        with trio.fail_after(SECONDS):
            idle_socket, busy_socket = [await child.proxy.websocket() for _ in range(2)]
            idle_client = await child.proxy.connect()
            await idle_client.send(post(named("idle")))
            await idle_client.answer()
            upstream.script = on_go
            busy_client = await _begun(child, upstream, "http")
            await busy_socket.send(create("websocket"))
            await busy_socket.until("response.created")
            fresh = await child.proxy.connect()

            child.signal()
            with trio.fail_after(SOON_SECONDS):
                assert await idle_socket.event() == Closed(1001)
                assert await idle_socket.client.wait_closed() == b""
                assert await idle_client.wait_closed() == b""
            await _assert_turned_away(child.proxy, fresh, busy_socket)

            upstream.release()
            assert b"response.completed" in await busy_client.body()
            await busy_socket.until("response.completed")
            assert await busy_socket.event() == Closed(1001)
            await _hang_up(idle_socket.client, busy_socket.client, busy_client, fresh)
            assert await child.wait() == 0
            assert len(upstream.sent) == 3


async def _assert_turned_away(proxy: Proxy, fresh: WireClient, busy: WebSocket) -> None:
    """Assert that each ask during the drain is told how long it may take."""
    await fresh.send(post(named("new")))
    refused = await fresh.answer()
    assert (refused.status, refused.code) == (503, "server_busy")
    assert refused.headers["x-turnlane-refusal"] == "draining"
    assert 2 < int(refused.headers["retry-after"]) <= 12
    await busy.send(create("websocket"))
    frame = await busy.event()
    assert frame["headers"]["x-turnlane-refusal"] == "draining"
    assert 2 < int(frame["headers"]["retry-after"]) <= 12
    denied = await upgrade(await proxy.connect())
    assert (denied.status, denied.headers["x-turnlane-refusal"]) == (503, "draining")
    ready = await proxy.get("/readyz")
    assert (ready.status, ready.json["status"]) == (503, "draining")
    assert (await proxy.get("/healthz")).status == 200
    assert (await proxy.status())["state"] == "draining"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_idle_process_is_gone_at_once_and_its_port_is_free(
    upstream: ScriptedUpstream, tmp_path: Path, number: signal.Signals
) -> None:
    async with open_child(tmp_path / "home", upstream.url) as child:
        with trio.fail_after(SECONDS):
            client, other = await child.proxy.connect(), await child.proxy.connect()
            for each in (client, other):
                await each.send(post(named("t")))
                await each.answer()
            socket = await child.proxy.websocket()
            await socket.send(create("t"))
            await socket.until("response.completed")
            child.signal(number)
            assert await socket.event() == Closed(1001)
            await _hang_up(socket.client)
            with trio.fail_after(SOON_SECONDS):
                assert await child.wait() == 0
            port = child.port
    async with open_child(tmp_path / "home", upstream.url, port=port) as after:
        client = await after.proxy.connect()
        await client.send(post(named("t")))
        assert (await client.answer()).status == 200


async def test_a_turn_that_is_longer_than_the_drain_is_cut_at_its_end(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.script = on_go
    short = _with_drain(tmp_path, 0.3)
    async with open_child(tmp_path / "home", upstream.url, *short) as child:
        with trio.fail_after(SECONDS):
            client = await _begun(child, upstream, "http")
            socket = await child.proxy.websocket()
            await socket.send(create("websocket"))
            await socket.until("response.created")
            child.signal()

            with pytest.raises(CutError):
                await client.body()
            while not isinstance(await socket.event(), Closed):
                pass
            assert await child.wait() == 0
            for sent in upstream.sent:
                await sent.cut.wait()


async def test_a_second_signal_ends_at_once(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.script = on_go
    async with open_child(tmp_path / "home", upstream.url) as child:
        with trio.fail_after(SECONDS):
            client = await _begun(child, upstream, "t")
            child.signal()
            while (await child.proxy.get("/readyz")).status == 200:
                pass
            with trio.fail_after(SOON_SECONDS):
                assert await child.stop() == 0
            with pytest.raises(CutError):
                await client.body()


async def test_a_client_that_reads_nothing_does_not_hold_up_the_end(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.script = endless
    short = _with_drain(tmp_path, 0.5)
    async with open_child(tmp_path / "home", upstream.url, *short) as child:
        with trio.fail_after(SECONDS):
            client = await child.proxy.connect(receive_bytes=4096)
            await client.send(post(named("t")))
            await upstream.wait_sent(1)
            child.signal()
            with trio.fail_after(SOON_SECONDS):
                assert await child.wait() == 0


async def test_the_limit_of_open_files_is_raised(upstream: ScriptedUpstream) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
    try:
        async with open_proxy(upstream.url):
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= before[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def _hang_up(*clients: WireClient) -> None:
    for client in clients:
        await client.hang_up()
