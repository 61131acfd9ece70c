"""Help texts, and output that cannot be written."""

from __future__ import annotations

import errno
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from proxy import __version__
from proxy.cli.common import say_what_is_lost
from proxy.cli.main import app
from tests.testkit.snapshots import Snapshot

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", [[], ["-u"]], ids=["buffered", "unbuffered"])
def test_a_full_disk_is_one_line(unbuffered: list[str], snapshot: Snapshot) -> None:
    with FULL.open("wb") as full:
        command = [sys.executable, *unbuffered, "-m", "proxy", "version"]
        ended = subprocess.run(
            command, check=False, stdout=full, stderr=subprocess.PIPE, timeout=20
        )

    assert ended.returncode == 1
    snapshot("errors", ended.stderr.decode())


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full", "/a/file"), OSError(errno.ENOTCONN, "no peer")]
)
def test_other_errors_are_not_hidden(error: OSError) -> None:
    def fails() -> None:
        raise error

    with pytest.raises(OSError, match=str(error.strerror)):
        say_what_is_lost(fails)


def test_the_version_is_an_option_too() -> None:
    runner = CliRunner()
    option, command = (runner.invoke(app, [name]) for name in ("--version", "version"))

    assert (option.stdout, option.exit_code) == (f"{__version__}\n", 0)
    assert command.stdout == option.stdout


def helps(command: Any, name: str) -> Iterator[str]:
    """Return the words of a command's help, and of the commands below it, without their layout."""
    yield f"{name}: {inspect.cleandoc(command.help or '')}"
    for each in command.params:
        if words := getattr(each, "help", None):
            yield f"    {' '.join(each.opts)}: {words}"
    for inner, below in getattr(command, "commands", {}).items():
        yield from helps(below, f"{name} {inner}")


def test_every_help_text(snapshot: Snapshot) -> None:
    snapshot("help", *helps(typer.main.get_command(app), "turnlane"))


def test_help_fits_eighty_columns_and_names_the_defaults() -> None:
    runner = CliRunner(env={"COLUMNS": "80"})
    shown = runner.invoke(app, ["serve", "--help"]).stdout
    groups: list[list[str]] = [[], ["accounts"], ["codex"], ["keys"], ["service"], ["workflows"]]
    commands = [runner.invoke(app, [*group, "--help"]).stdout for group in groups]

    assert "127.0.0.1" in shown
    assert "10110" in shown
    assert "<" not in shown
    assert not any("..." in each.partition("Commands:")[2] for each in commands)
