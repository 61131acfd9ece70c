"""A turnlane process of its own, and what its `/status` says it still holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import trio

from harness.wire.client import CutError, fetch

READY_SECONDS = 10
STATUS_SECONDS = 5
STOP_SECONDS = 15
IDLE_SECONDS = 5
POLL_SECONDS = 0.02
CLOSE_WAIT = "08"
"""As /proc/net/tcp writes the state."""
Status = dict[str, Any]
_KEPT = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "SSL_CERT_FILE")


def environment(home: Path, **more: str) -> dict[str, str]:
    """Nothing of the caller's settings, no HTTP proxy between loopback and loopback."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, "HOME": str(home), "TERM": "xterm", **more}


@dataclass(slots=True, kw_only=True, eq=False)
class Turnlane:
    process: trio.Process
    port: int
    output: Path
    stopped: bool = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def status(self) -> Status:
        with trio.fail_after(STATUS_SECONDS):
            reply = await fetch(self.port, "GET", "/status")
        assert reply.status == 200, reply
        status: Status = reply.json
        return status

    async def wait_websockets(self, active: int, *, seconds: float = IDLE_SECONDS) -> None:
        """Until exactly that many WebSockets are open."""
        seen = -1
        with trio.move_on_after(seconds):
            while True:
                seen = (await self.status())["websockets"]["active"]
                if seen == active:
                    return
                await trio.sleep(POLL_SECONDS)
        raise AssertionError(f"{seen} WebSockets are open, not {active}")

    async def wait_draining(self) -> None:
        """Until it takes no more turns: not ready, or not even listening."""
        with trio.fail_after(STATUS_SECONDS):
            while True:
                await trio.sleep(POLL_SECONDS)
                try:
                    reply = await fetch(self.port, "GET", "/readyz")
                except CutError:
                    return
                if reply.status != 200:
                    return

    async def crash(self) -> None:
        self.stopped = True
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> int:
        """SIGTERM, and the exit code; killed, and an AssertionError, when it does not obey."""
        self.stopped = True
        self.process.send_signal(signal.SIGTERM)
        with trio.move_on_after(STOP_SECONDS):
            return await self.process.wait()
        self.process.kill()
        raise AssertionError(f"turnlane ran on for {STOP_SECONDS} s after SIGTERM")


async def start_turnlane(
    nursery: trio.Nursery,
    upstream_url: str,
    home: Path,
    *,
    port: int = 0,
    settings: str = "",
    variables: Mapping[str, str] = MappingProxyType({}),
    options: tuple[str, ...] = (),
) -> Turnlane:
    """A turnlane that has said it is ready; the end of the nursery ends it too."""
    output, config = home / "output.txt", home / "turnlane.toml"
    await trio.Path(home).mkdir(exist_ok=True)
    config.write_text(settings)
    command = [sys.executable, "-m", "turnlane", "serve", "--port", str(port), *options]
    with output.open("ab") as errors:
        run = partial(
            trio.run_process,
            [*command, "--upstream", upstream_url, "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            check=False,
            cwd=home,
            env=environment(home, TURNLANE_HOME=str(home / "turnlane"), **variables),
        )
        process: trio.Process = await nursery.start(run)
    ready = await _first_line(process, output)
    assert ready.startswith("turnlane "), ready
    assert " ready on http://127.0.0.1:" in ready, ready
    assert process.stdout is not None
    nursery.start_soon(_drain, process.stdout)
    return Turnlane(
        process=process,
        port=int(ready.rpartition(":")[2]),
        output=output,
    )


async def _first_line(process: trio.Process, output: Path) -> str:
    assert process.stdout is not None
    line = b""
    with trio.move_on_after(READY_SECONDS):
        while True:
            byte = await process.stdout.receive_some(1)
            if byte in {b"", b"\n"}:
                break
            line += byte
    if line:
        return line.decode()
    errors = await trio.Path(output).read_text(errors="replace")
    raise AssertionError(f"turnlane is not ready within {READY_SECONDS} s:\n{errors}")


async def _drain(stdout: trio.abc.ReceiveStream) -> None:
    async for _ in stdout:
        pass


def half_closed(port: int) -> int:
    """Connections whose client has left and that are kept open; where Linux tells, else none."""
    table = Path("/proc/net/tcp")
    lines = table.read_text().splitlines()[1:] if table.exists() else []
    rows = [line.split() for line in lines]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == CLOSE_WAIT for row in rows)


def held(status: Status, port: int) -> dict[str, int]:
    """Return what is still held when nothing runs."""
    figures = {
        "lanes.active": status["lanes"]["active"],
        "lanes.retained_bytes": status["lanes"]["retained_bytes"],
        "turns.active": status["turns"]["active"],
        "memory.held_bytes": status["memory"]["held_bytes"],
        "websockets.active": status["websockets"]["active"],
        "workflows.active": status["workflows"]["active"],
        "half-closed connections": half_closed(port),
    }
    return {name: figure for name, figure in figures.items() if figure}


async def wait_idle(turnlane: Turnlane) -> Status:
    """The status once nothing is held any more, which is soon after its clients have left."""
    rest: dict[str, int] = {}
    with trio.move_on_after(IDLE_SECONDS):
        while True:
            status = await turnlane.status()
            await trio.sleep(POLL_SECONDS)
            rest = held(status, turnlane.port)
            if not rest:
                return status
    raise AssertionError(f"still held after {IDLE_SECONDS} s: {rest}")
