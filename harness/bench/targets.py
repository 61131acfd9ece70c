"""The targets: the floor, turnlane, and the peers that are installed; how each is started."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.child import python, with_path

READY_SECONDS = 30.0
STOP_SECONDS = 10.0
LOG_TAIL_CHARACTERS = 2000
PEER_SETTLES_SECONDS = 3.0
"""A peer goes on starting after the first connection that it accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Starts a target, given its port, its upstream's port and an empty home of its own."""

    name: str
    command: Callable[[int, int, Path], Sequence[str]]
    transports: tuple[str, ...] = ("http", "ws")
    model: str = "bench"
    settles_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Running:
    recipe: Recipe
    port: int
    pid: int


def _floor(port: int, upstream: int, home: Path) -> Sequence[str]:
    return python("harness.bench.floor", str(port), str(upstream))


def turnlane_arguments(port: int, upstream: int) -> Sequence[str]:
    return ["serve", "--port", str(port), "--upstream", f"http://127.0.0.1:{upstream}/v1"]


def _turnlane(port: int, upstream: int, home: Path) -> Sequence[str]:
    return python("proxy", *turnlane_arguments(port, upstream))


FLOOR = Recipe(name="floor", command=_floor, transports=("http",))
TURNLANE = Recipe(name="turnlane", command=_turnlane)


def opencodex(folder: Path) -> Recipe | None:
    """`npm install --prefix FOLDER @bitkyc08/opencodex`; None if it is not there."""
    package = folder / "node_modules/@bitkyc08/opencodex/src/cli/index.ts"
    bun = folder / "node_modules/bun/bin/bun.exe"

    def command(port: int, upstream: int, home: Path) -> Sequence[str]:
        provider = {
            "adapter": "openai-responses",
            "baseUrl": f"http://127.0.0.1:{upstream}",
            "apiKey": "sk-bench",
            "allowPrivateNetwork": True,
            "liveModels": False,
            "models": ["bench"],
        }
        settings = {
            "port": port,
            "providers": {"bench": provider},
            "defaultProvider": "bench",
            "websockets": True,
            "codexAutoStart": False,
            "openaiProviderTierVersion": 2,
        }
        (home / ".opencodex").mkdir()
        (home / ".codex").mkdir()
        (home / ".opencodex/config.json").write_text(json.dumps(settings), "utf-8")
        return [str(bun), str(package), "start", "--port", str(port)]

    if not package.exists() or not bun.exists():
        return None
    return Recipe(
        name="opencodex",
        command=command,
        model="bench/bench",
        settles_seconds=PEER_SETTLES_SECONDS,
    )


def other(name: str, line: str) -> Recipe:
    """A peer by its command line, with {port}, {upstream} and {home} in it."""

    def command(port: int, upstream: int, home: Path) -> Sequence[str]:
        return [word.format(port=port, upstream=upstream, home=home) for word in line.split()]

    return Recipe(name=name, command=command, settles_seconds=PEER_SETTLES_SECONDS)


@contextmanager
def upstream(events: int, pause_seconds: float) -> Iterator[int]:
    """The port of a scripted upstream."""
    port = free_port()
    script = [str(port), str(events), str(pause_seconds)]
    with TemporaryDirectory() as home:
        command = python("harness.bench.upstream", *script)
        with _child(command, Path(home), port):
            yield port


@contextmanager
def running(recipe: Recipe, upstream_port: int, home: Path) -> Iterator[Running]:
    port = free_port()
    home.mkdir()
    with _child(recipe.command(port, upstream_port, home), home, port) as pid:
        time.sleep(recipe.settles_seconds)
        yield Running(recipe, port, pid)


@contextmanager
def _child(command: Sequence[str], home: Path, port: int) -> Iterator[int]:
    """A process that listens, with nothing of the user's configuration and no proxy of theirs."""
    environment = with_path({x: os.environ[x] for x in ("PATH", "LANG") if x in os.environ})
    folders = {"HOME": "", "TURNLANE_HOME": ".turnlane", "CODEX_HOME": ".codex"}
    environment |= {name: str(home / folder) for name, folder in folders.items()}
    environment["OPENCODEX_HOME"] = str(home / ".opencodex")
    with (home / "log").open("wb") as log:
        child = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_listening(port, child, home)
        yield child.pid
    finally:
        child.terminate()
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def wait_listening(port: int, child: "subprocess.Popen[bytes]", home: Path) -> None:
    """Raises SystemExit, with what it said, for a child that does not come up."""
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until and child.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    said = (home / "log").read_text("utf-8", "replace")[-LOG_TAIL_CHARACTERS:]
    raise SystemExit(f"{child.args!r} does not listen:\n{said}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
