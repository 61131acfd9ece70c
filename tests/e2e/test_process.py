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


async def test_a_home_is_free_again_once_its_process_was_killed(
    child: Child, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    child.process.kill()
    await child.wait()

    async with open_child(tmp_path / "home", upstream.url, port=child.port) as next_one:
        assert (await next_one.proxy.get("/readyz")).status == 200


async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        failed = await run(["serve", "--port", str(port)], tmp_path / "home")

    assert failed.returncode == 2
    assert f"server.port: 127.0.0.1:{port} is taken, pid {os.getpid()}" in failed.stderr.decode()


async def test_a_wrong_configuration_is_told_by_its_key(tmp_path: Path) -> None:
    file = tmp_path / "turnlane.toml"
    await trio.Path(file).write_text("[server]\nprot = 1\n")
    checked = await run(["check", "--config", str(file)], tmp_path / "home")

    assert checked.returncode == 2
    assert "server.prot: unknown key" in checked.stderr.decode()
    assert checked.stdout == b""


async def test_a_check_opens_the_credentials_that_serving_would(tmp_path: Path) -> None:
    file = tmp_path / "turnlane.toml"
    await trio.Path(file).write_text('[accounts.work]\nkey = "file:none"\n')
    refused = await run(["check", "--config", str(file)], tmp_path / "home")
    await trio.Path(file).write_text('[accounts.work]\nauth_json = "none"\n')
    warned = await run(["check", "--config", str(file)], tmp_path / "home")

    assert (refused.returncode, warned.returncode) == (2, 0)
    assert "accounts.work.key: " in refused.stderr.decode()
    assert "accounts.work: its auth.json is gone" in warned.stderr.decode()
    assert b"configuration good" in warned.stdout
