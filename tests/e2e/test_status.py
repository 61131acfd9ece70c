"""`turnlane status` and `doctor` about a real process: true in every state, and no file changes."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from harness.wire.upstream import ScriptedUpstream
from proxy.codex.place import Environment, turn_on
from proxy.journal.store import newest
from tests.e2e.process import ROOT, codex_home, environment, open_child, run
from tests.testkit.wire import named, post

pytestmark = pytest.mark.load  # processes of its own: seconds each

SECONDS = 60
LOOKS = (["status"], ["doctor"], ["codex", "show"])
LEFT_OUT = shutil.ignore_patterns("__pycache__")
PACKAGES = ("proxy", "lifecycle", "harness")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    codex_home(tmp_path / "home").mkdir()
    (codex_home(tmp_path / "home") / "config.toml").write_text("# mine\n")
    return tmp_path / "home"


async def status(home: Path) -> tuple[int, dict[str, Any]]:
    done = await run(["status", "--json"], home)
    return done.returncode, json.loads(done.stdout)


async def findings(
    home: Path, upstream: ScriptedUpstream, *options: str
) -> dict[str, dict[str, Any]]:
    """What the doctor says of each thing."""
    done = await run(["doctor", "--json", *options], home, TURNLANE_UPSTREAM=upstream.url)
    found = {each["about"]: each for each in json.loads(done.stdout)}
    wrong = any(each["level"] == "wrong" for each in found.values())
    assert done.returncode == (1 if wrong else 0)
    return found


def everything(home: Path) -> dict[str, tuple[float, str]]:
    """Each file of both homes, and each directory, with its content's hash and when it changed."""
    return {
        str(path): (path.stat().st_mtime, content(path))
        for folder in (home, codex_home(home))
        for path in sorted([folder, *folder.rglob("*")])
        if path.exists()
    }


def content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


async def look(home: Path, upstream: ScriptedUpstream) -> dict[str, tuple[float, str]]:
    """What is there after every command that only looks."""

    async def once(command: list[str]) -> None:
        done = await run(command, home, TURNLANE_UPSTREAM=upstream.url)
        assert (done.returncode in (0, 1), done.stderr) == (True, b"")

    async with trio.open_nursery() as looking:
        for command in LOOKS:
            looking.start_soon(once, command)
    return everything(home)


@asynccontextmanager
async def used(home: Path, upstream: ScriptedUpstream) -> AsyncIterator[Any]:
    """A process that has served a turn, has Codex connected, and rests."""
    async with open_child(home, upstream.url) as child:
        place = Environment(home=home, environment=environment(home))
        await trio.to_thread.run_sync(turn_on, place, child.port)
        client = await child.proxy.connect()
        await client.send(post(named("t1")))
        assert (await client.answer()).status == 200
        while not newest(home, 1):
            await child.proxy.status()
        yield child


# Is it up.


async def test_one_that_serves_is_seen_with_its_last_turn(
    upstream: ScriptedUpstream, home: Path
) -> None:
    with trio.fail_after(SECONDS):
        async with used(home, upstream) as child:
            code, seen = await status(home)
            screen = await run(["status"], home)

    assert (code, seen["serving"], seen["problem"]) == (0, True, None)
    assert seen["process"]["pid"] == child.process.pid
    assert seen["url"] == f"http://127.0.0.1:{child.port}"
    assert (seen["hour"]["turns"], seen["routing"]["state"]) == (1, "seen")
    assert screen.returncode == 0
    assert screen.stdout.decode().startswith(f"turnlane  serving on {seen['url']}")


async def test_the_files_of_a_killed_process_do_not_look_like_a_running_one(
    upstream: ScriptedUpstream, home: Path
) -> None:
    with trio.fail_after(SECONDS):
        async with used(home, upstream) as child:
            child.process.kill()
            await child.wait()
            left = {Path(path).name for path in everything(home)}
            code, seen = await status(home)
            found = await findings(home, upstream)

    assert {"lock", "control.sock", "journal.sqlite3-wal"} <= left
    assert (code, seen["serving"], seen["process"]) == (1, False, None)
    assert (seen["hour"]["turns"], seen["journal_problem"]) == (1, None)
    assert found["lock"]["level"] == "good"
    serve_again = f"turnlane serve --port {child.port}, or turnlane codex off"
    assert found["Codex"]["mend"] == serve_again


# Looking changes nothing.


@pytest.mark.parametrize("ending", [None, signal.SIGTERM, signal.SIGKILL])
async def test_looking_changes_no_file_of_one_that_runs_or_has_ended(
    ending: signal.Signals | None, upstream: ScriptedUpstream, home: Path
) -> None:
    with trio.fail_after(SECONDS):
        async with used(home, upstream) as child:
            if ending is not None:
                child.signal(ending)
                await child.wait()
            before = everything(home)
            after = await look(home, upstream)

    assert any(path.endswith("-wal") for path in before) or ending is signal.SIGTERM
    assert after == before


async def test_looking_at_nothing_makes_nothing(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        after = await look(tmp_path / "home", upstream)

    assert after == {}


# An upgrade under its feet.


async def test_a_process_whose_files_have_changed_and_gone_still_names_itself(
    upstream: ScriptedUpstream, home: Path, tmp_path: Path
) -> None:
    package = tmp_path / "package"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, package / name, ignore=LEFT_OUT)
    (package / "proxy" / "__init__.py").write_text('__version__ = "0.0.1"\n')
    settings = {**environment(home), "PYTHONPATH": str(package), "PYTHONSAFEPATH": "1"}
    with trio.fail_after(SECONDS):
        async with open_child(home, upstream.url, settings=settings) as child:
            for path in package.rglob("*.py"):
                path.write_text("raise RuntimeError('another version')\n")
            changed = (await child.proxy.get("/healthz")).json["service"], await status(home)
            shutil.rmtree(package)
            gone = (await child.proxy.get("/healthz")).json["service"], await status(home)
            again = await child.proxy.connect()
            await again.send(post(named("t1")))
            served = (await again.answer()).status

    for service, (code, seen) in (changed, gone):
        assert (service, code, seen["process"]["version"]) == ("turnlane", 0, "0.0.1")
    assert served == 200
