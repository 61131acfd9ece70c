"""The proxy under test: a child process of its own, with nothing of the user's configuration."""

import re
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Protocol

import trio

from harness.child import python, with_path
from harness.recall.line import Address

Runner = Callable[..., Awaitable[object]]

READY_SECONDS = 20.0
STOP_SECONDS = 3.0
"""Nothing runs any more when the child is told to stop, unless it has leaked."""
LOG_TAIL_BYTES = 4000
_KEPT = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TMPDIR")
_READY = b" ready on http://"


class ProxyStartError(Exception):
    """The child did not come up. The text is what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A proxy to load. Only a child has a pid and a log."""

    address: Address
    pid: int | None = None
    log: Path | None = None

    def log_tail(self) -> str:
        if self.log is None:
            return ""
        return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")


def child_environment(environment: Mapping[str, str], home: str) -> dict[str, str]:
    """Return what the child needs to start, and no setting of the user's."""
    kept = {name: environment[name] for name in _KEPT if name in environment}
    return with_path({**kept, "HOME": home, "TURNLANE_HOME": home})


@asynccontextmanager
async def open_proxy(
    upstream_port: int, environment: Mapping[str, str], module: str = "proxy"
) -> AsyncIterator[Target]:
    """Start `module` as the proxy, yield it once it is ready, and end it whatever happens."""
    upstream = f"http://127.0.0.1:{upstream_port}/v1"
    command = python(module, "serve", "--port", "0", "--upstream", upstream)
    with TemporaryDirectory(prefix="turnlane-recall-") as home:
        log = Path(home) / "stderr.log"
        child = child_environment(environment, home)
        with log.open("wb") as stderr:
            async with trio.open_nursery() as nursery:
                process: trio.Process = await nursery.start(_runner(command, child, stderr))
                address = await _wait_ready(process)
                if address is not None:
                    nursery.start_soon(_drain, process)
                    yield Target(address=address, pid=process.pid, log=log)
                nursery.cancel_scope.cancel()
        if address is None:
            raise ProxyStartError(log.read_text(errors="replace")[-LOG_TAIL_BYTES:])


def _runner(command: list[str], environment: Mapping[str, str], stderr: BinaryIO) -> Runner:
    return partial(
        trio.run_process,
        command,
        stdout=subprocess.PIPE,
        stderr=stderr,
        check=False,
        env=environment,
        deliver_cancel=stop,
    )


async def _wait_ready(process: trio.Process) -> Address | None:
    """The address of the line `turnlane <version> ready on http://<host>:<port>`."""
    said = b""
    with trio.move_on_after(READY_SECONDS):
        while b"\n" not in said and (data := await _read(process)):
            said += data
    _, found, place = said.partition(b"\n")[0].partition(_READY)
    host, _, port = place.decode(errors="replace").strip().rpartition(":")
    return Address(host=host, port=int(port)) if found and port.isdecimal() else None


async def _drain(process: trio.Process) -> None:
    """Read on, so that a child which says more cannot block on a full pipe."""
    while await _read(process):
        continue


async def _read(process: trio.Process) -> bytes:
    assert process.stdout is not None  # it was asked for
    return bytes(await process.stdout.receive_some())


class Ending(Protocol):
    """The part of a process by which it is ended."""

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


async def stop(process: Ending) -> None:
    """Ask a process to end, and make it when it does not; cancelled once it has."""
    process.terminate()
    await trio.sleep(STOP_SECONDS)
    process.kill()


_RESIDENT = re.compile(r"^(VmRSS|VmHWM):\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """In bytes; the peak is that of the process's whole life."""

    now: int
    peak: int


def read_resident(pid: int | None, proc: Path = Path("/proc")) -> Resident | None:
    """Return None without a pid, and on systems that do not say."""
    if pid is None:
        return None
    try:
        told = dict(_RESIDENT.findall((proc / str(pid) / "status").read_text()))
        return Resident(now=1024 * int(told["VmRSS"]), peak=1024 * int(told["VmHWM"]))
    except (OSError, KeyError):
        return None
