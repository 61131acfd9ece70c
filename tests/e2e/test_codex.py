"""`turnlane serve --codex` as a process: what is left of it however it ends."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from harness.wire.upstream import ScriptedUpstream
from tests.e2e.process import codex_home, open_child, run

pytestmark = pytest.mark.load  # processes of its own: seconds each

SECONDS = 30
ASKED_TIMES = 40
BEFORE = b"# mine\n[tui]\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def config(home: Path) -> Path:
    codex_home(home).mkdir()
    config = codex_home(home) / "config.toml"
    config.write_bytes(BEFORE)
    return config


def content(config: Path) -> bytes:
    return config.read_bytes()


async def connected(home: Path) -> dict[str, Any]:
    """What `codex show` says once it is connected, which is soon after it is ready."""
    for _ in range(ASKED_TIMES):
        shown: dict[str, Any] = json.loads((await run(["codex", "show", "--json"], home)).stdout)
        if shown["note"] is not None and shown["note"]["agrees"]:
            return shown
    raise AssertionError(f"not connected: {shown}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_puts_codex_back(
    number: signal.Signals, upstream: ScriptedUpstream, home: Path, config: Path
) -> None:
    with trio.fail_after(SECONDS):
        async with open_child(home, upstream.url, "--codex") as child:
            shown = await connected(home)
            child.signal(number)
            code = await child.wait()

    assert shown["url"] == f"http://127.0.0.1:{child.port}/v1"
    assert (code, content(config)) == (0, BEFORE)


async def test_after_a_kill_codex_is_put_back_offline(
    upstream: ScriptedUpstream, home: Path, config: Path
) -> None:
    with trio.fail_after(SECONDS):
        async with open_child(home, upstream.url, "--codex") as child:
            await connected(home)
            child.process.kill()
            await child.wait()
            left = content(config)
            off = [await run(["codex", "off"], home) for _ in range(2)]

    assert left != BEFORE
    assert [done.returncode for done in off] == [0, 0]
    assert content(config) == BEFORE


async def test_after_a_kill_the_next_one_takes_over_and_puts_back(
    upstream: ScriptedUpstream, home: Path, config: Path
) -> None:
    with trio.fail_after(SECONDS):
        async with open_child(home, upstream.url, "--codex") as killed:
            await connected(home)
            killed.process.kill()
            await killed.wait()
        async with open_child(home, upstream.url, "--codex") as child:
            shown = await connected(home)
            while shown["url"] != f"http://127.0.0.1:{child.port}/v1":
                shown = await connected(home)
            code = await child.stop()

    assert (code, content(config)) == (0, BEFORE)


async def test_the_next_one_connects_codex_that_takes_over_and_puts_it_back_at_its_own_end(
    upstream: ScriptedUpstream, home: Path, config: Path
) -> None:
    with trio.fail_after(SECONDS):
        async with open_child(home, upstream.url, "--codex") as first:
            await connected(home)
            async with open_child(
                home, upstream.url, "--codex", "--take-over", port=first.port
            ) as second:
                assert await first.wait() == 0
                shown = await connected(home)
                assert await second.stop() == 0

    assert shown["url"] == f"http://127.0.0.1:{first.port}/v1"
    assert content(config) == BEFORE


async def test_a_start_that_fails_leaves_no_dead_address(
    upstream: ScriptedUpstream, home: Path, config: Path
) -> None:
    with trio.fail_after(SECONDS):
        async with open_child(home, upstream.url, "--codex") as child:
            await connected(home)
            second = await run(["serve", "--codex", "--port", "0"], home)
            kept = content(config)
            child.process.kill()
            await child.wait()
        async with open_child(home.with_name("other"), upstream.url) as other:
            third = await run(["serve", "--codex", "--port", str(other.port)], home)

    assert (second.returncode, third.returncode) == (2, 2)
    assert kept != BEFORE
    assert content(config) == BEFORE
