"""The proxy as a process of its own, as its users start it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import trio

from tests.e2e.proxy import Proxy

ROOT = Path(__file__).parents[2]
LAUNCHER = """
import os, sys
os.dup2(int(os.environ.pop("PASSED")), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[1], sys.argv[1:])
"""
READY_SECONDS = 10
END_SECONDS = 15


@dataclass(slots=True, kw_only=True)
class Child:
    process: trio.Process
    proxy: Proxy
    ready: str
    ready_seconds: float
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def port(self) -> int:
        return self.proxy.port

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    async def wait(self) -> int:
        with trio.fail_after(END_SECONDS):
            return await self.process.wait()

    async def stop(self) -> int:
        self.signal()
        return await self.wait()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "proxy", *arguments]


def environment(home: Path, **more: str) -> dict[str, str]:
    """This process's, with homes of its own and none of its user's settings."""
    kept = {key: text for key, text in os.environ.items() if not key.startswith("TURNLANE_")}
    homes = {"TURNLANE_HOME": str(home), "CODEX_HOME": str(codex_home(home))}
    return {**kept, **homes, "PYTHONPATH": str(ROOT), **more}


def codex_home(home: Path) -> Path:
    """Return the CODEX_HOME that goes with that TURNLANE_HOME."""
    return home.with_name(f"{home.name}-codex")


@asynccontextmanager
async def open_child(
    home: Path,
    upstream: str,
    *arguments: str,
    port: int = 0,
    listening: socket.socket | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[Child]:
    """A process that has said it is ready; killed at the end if it is still there. `listening` is
    passed to it as a service manager does; `settings` are its whole environment, if it is not that
    of `environment` with `variables`."""
    await trio.Path(home).mkdir(exist_ok=True)
    log = home / "stderr.txt"
    line = command("serve", "--port", str(port), "--upstream", upstream, *arguments)
    variables = dict(variables)
    if listening is not None:
        line = [sys.executable, "-c", LAUNCHER, *line]
        variables |= {"LISTEN_FDS": "1", "PASSED": str(listening.fileno())}
    began = trio.current_time()
    with log.open("ab") as errors:
        process = await trio.lowlevel.open_process(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=settings or environment(home, **variables),
            pass_fds=() if listening is None else (listening.fileno(),),
        )
    try:
        ready = await _first_line(process)
        assert " ready on http://127.0.0.1:" in ready, (ready, log.read_text())
        child = Child(
            process=process,
            proxy=Proxy(port=int(ready.rpartition(":")[2])),
            ready=ready,
            ready_seconds=trio.current_time() - began,
            log=log,
        )
        async with child.proxy.opened:
            yield child
    finally:
        with trio.move_on_after(END_SECONDS, shield=True):
            await _end(process)


async def run(
    arguments: Sequence[str], home: Path, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Another command to its end."""
    with trio.fail_after(END_SECONDS):
        return await trio.run_process(
            command(*arguments),
            env=environment(home, **variables),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )


async def _first_line(process: trio.Process) -> str:
    assert process.stdout is not None
    line = bytearray()
    with trio.fail_after(READY_SECONDS):
        while b"\n" not in line:
            if not (piece := await process.stdout.receive_some()):
                break
            line += piece
    return line.decode().partition("\n")[0]


async def _end(process: trio.Process) -> None:
    assert process.stdout is not None
    if process.poll() is None:
        process.kill()
        await process.wait()
    await process.stdout.aclose()
