"""Exits: what a command cannot write is one line, and what it breaks otherwise stays a bug."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from proxy import __version__
from proxy.cli.common import say_what_is_lost
from proxy.cli.main import app

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", [[], ["-u"]])
def test_a_full_disk_is_said_in_a_line(unbuffered: list[str]) -> None:
    with FULL.open("wb") as full:
        command = [sys.executable, *unbuffered, "-m", "proxy", "version"]
        ended = subprocess.run(
            command, check=False, stdout=full, stderr=subprocess.PIPE, timeout=20
        )

    assert ended.returncode == 1
    assert ended.stderr.decode().splitlines() == [
        "turnlane: the answer cannot be written: No space left on device"
    ]


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full", "/a/file"), OSError(errno.ENOTCONN, "no peer")]
)
def test_other_troubles_are_not_hidden(error: OSError) -> None:
    def fails() -> None:
        raise error

    with pytest.raises(OSError, match=str(error.strerror)):
        say_what_is_lost(fails)


def test_the_version_is_an_option_too() -> None:
    runner = CliRunner()
    option, command = (runner.invoke(app, [name]) for name in ("--version", "version"))

    assert (option.stdout, option.exit_code) == (f"{__version__}\n", 0)
    assert command.stdout == option.stdout


def test_help_fits_eighty_columns_and_names_the_defaults() -> None:
    runner = CliRunner(env={"COLUMNS": "80"})
    shown = runner.invoke(app, ["serve", "--help"]).stdout
    commands = runner.invoke(app, ["--help"]).stdout

    assert "by default 127.0.0.1" in shown
    assert "10110" in shown
    assert "<" not in shown
    assert "..." not in commands.partition("Commands:")[2]
