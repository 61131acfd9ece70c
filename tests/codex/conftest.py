"""The line every test of this folder stands in: Codex, a tap, turnlane, a scripted service."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from tests.codex.cli import Codex, with_provider
from tests.codex.tap import Tap, start_tap
from tests.codex.turnlane import Turnlane, start_turnlane
from tests.codex.upstream import TurnUpstream, answer, start_upstream


@pytest.fixture
def binary() -> Path:
    named = os.environ.get("TURNLANE_CODEX")
    if not named:
        pytest.fail("TURNLANE_CODEX must name the codex binary; .ci/codex-install installs one")
    path = Path(named).absolute()
    assert os.access(path, os.X_OK), f"TURNLANE_CODEX is not an executable file: {path}"
    return path


@pytest.fixture
async def upstream(nursery: trio.Nursery) -> TurnUpstream:
    return await start_upstream(nursery, answer("hello"))


@pytest.fixture
def settings() -> str:
    """The configuration file of turnlane: a test that needs another one parametrizes this."""
    return ""


@pytest.fixture
async def turnlane(
    nursery: trio.Nursery, upstream: TurnUpstream, tmp_path: Path, settings: str
) -> AsyncIterator[Turnlane]:
    home = tmp_path / "turnlane"
    running = await start_turnlane(nursery, upstream.url, home, settings=settings)
    yield running
    code = 0 if running.stopped else await running.stop()
    sys.stdout.write(running.output.read_text(errors="replace"))
    assert code == 0


@pytest.fixture
async def tap(nursery: trio.Nursery, turnlane: Turnlane) -> Tap:
    return await start_tap(nursery, turnlane.port)


@pytest.fixture(params=[True, False], ids=["websocket", "http"])
def websockets(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def codex(binary: Path, tmp_path: Path, tap: Tap, websockets: bool) -> Codex:
    return with_provider(binary, tmp_path / "client", tap.url, websockets=websockets)
