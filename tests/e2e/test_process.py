"""The process: its start, its home, its port and its control socket."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from harness.wire.client import HOST, request
from harness.wire.upstream import ScriptedUpstream
from tests.e2e.process import Child, open_child, run
from tests.testkit.wire import create, named, post

pytestmark = pytest.mark.load  # processes of its own: seconds each

SECONDS = 20


@pytest.fixture
async def child(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Child]:
    async with open_child(tmp_path / "home", upstream.url) as child:
        yield child


async def test_it_says_where_it_is_ready_and_serves_alone_in_its_home(
    child: Child, tmp_path: Path
) -> None:
    with trio.fail_after(SECONDS):
        client = await child.proxy.connect()
        await client.send(post(named("a")))
        assert (await client.answer()).status == 200
        socket = await child.proxy.websocket()
        await socket.send(create("b"))
        await socket.until("response.completed")
        for _ in range(300):  # the next one leaves while the server still ends the last one
            await client.send(request("GET", "/healthz"))
            assert (await client.answer("GET")).status == 200
        second = await run(["serve", "--port", "0"], tmp_path / "home")

        assert child.ready == f"turnlane 0.1.0 ready on http://127.0.0.1:{child.port}"
        assert second.returncode == 2
        assert f"the process with pid {child.process.pid}" in second.stderr.decode()
        assert second.stdout == b""
        assert await child.stop() == 0


async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        failed = await run(["serve", "--port", str(port)], tmp_path / "home")

    assert failed.returncode == 2
    assert f"server.port: 127.0.0.1:{port} is taken, pid {os.getpid()}" in failed.stderr.decode()
