"""The child comes up with nothing of the user's, says where, and is gone afterwards."""

import os
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from harness.child import ROOT
from harness.recall.line import Address
from harness.recall.proxy import (
    ProxyStartError,
    Resident,
    Target,
    child_environment,
    open_proxy,
    read_resident,
    stop,
)


def test_nothing_of_the_users_settings_reaches_the_child() -> None:
    mine = {"PATH": "/bin", "TURNLANE_CONFIG": "mine", "OPENAI_API_KEY": "mine", "HOME": "/me"}

    assert child_environment(mine, "/tmp/x") == {
        "PATH": "/bin",
        "PYTHONPATH": str(ROOT),
        "HOME": "/tmp/x",
        "TURNLANE_HOME": "/tmp/x",
    }


def runs(target: Target) -> bool:
    return Path(f"/proc/{target.pid}").exists()


async def test_a_child_that_is_ready_says_where_and_is_gone_afterwards() -> None:
    with trio.fail_after(10):
        async with open_proxy(9, os.environ, "tests.harness.recall.children.ready") as target:
            running = runs(target)
            log = target.log_tail()

    assert target.address == Address(host="127.0.0.1", port=12345)
    assert running
    assert not runs(target)
    assert "['serve', '--port', '0', '--upstream', 'http://127.0.0.1:9/v1']" in log
    assert "TURNLANE_CONFIG" not in log


async def test_a_child_that_does_not_come_up_says_why() -> None:
    with pytest.raises(ProxyStartError, match="no such key"), trio.fail_after(10):
        async with open_proxy(9, os.environ, "tests.harness.recall.children.broken"):
            pytest.fail("it cannot be ready")


def test_a_proxy_that_is_not_a_child_has_no_log() -> None:
    assert Target(address=Address(host="127.0.0.1", port=1)).log_tail() == ""


async def test_a_child_that_does_not_end_is_killed(autojump_clock: MockClock) -> None:
    record: list[str] = []

    class Deaf:
        def terminate(self) -> None:
            record.append("terminate")

        def kill(self) -> None:
            record.append("kill")

    await stop(Deaf())

    assert record == ["terminate", "kill"]


def test_what_the_system_tells(tmp_path: Path) -> None:
    told = tmp_path / "7" / "status"
    told.parent.mkdir()
    told.write_text("Name:\tx\nVmHWM:\t    20 kB\nVmRSS:\t    10 kB\n")

    assert read_resident(7, tmp_path) == Resident(now=10 * 1024, peak=20 * 1024)


def test_a_process_that_is_not_there_or_does_not_say(tmp_path: Path) -> None:
    (tmp_path / "8").mkdir()
    (tmp_path / "8" / "status").write_text("Name:\tx\n")

    assert read_resident(7, tmp_path) is None
    assert read_resident(8, tmp_path) is None
    assert read_resident(None, tmp_path) is None
