"""What the person who started turnlane is told about Codex."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.cli.codex import called, hint_of_codex
from proxy.codex.connect import connect
from proxy.codex.files import Disk
from proxy.keys import KeyRing
from tests.testkit.snapshots import Snapshot

URL = "http://127.0.0.1:10110"
USER = {"HOME": "/home/user"}


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        (USER, " ~/.codex/config.toml "),
        (USER | {"CODEX_HOME": "/elsewhere"}, " /elsewhere/config.toml "),
    ],
)
def test_the_file_is_the_one_that_codex_reads(
    environment: dict[str, str], named: str, tmp_path: Path
) -> None:
    said = hint_of_codex(URL, tmp_path, environment, ".venv/bin/turnlane")

    assert "`.venv/bin/turnlane codex on`" in said
    assert named in said
    assert f'openai_base_url = "{URL}/v1"' in said


def test_the_hint_depends_on_what_listens_and_on_what_is_connected(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    hints = [hint_of_codex(url, tmp_path, USER, "turnlane") for url in (URL, "http://[::1]:7")]
    connect(Disk(), tmp_path, tmp_path / "config.toml", f"{URL}1/v1", lambda: 0.0)
    elsewhere = hint_of_codex(URL, tmp_path, USER, "turnlane")
    connect(Disk(), tmp_path, tmp_path / "config.toml", f"{URL}/v1", lambda: 0.0)
    hints.append(hint_of_codex(URL, tmp_path, USER, "turnlane"))
    KeyRing(tmp_path).add("desk")
    hints.append(hint_of_codex(URL, tmp_path, USER, "turnlane"))

    assert elsewhere == hints[0]
    assert "openai_base_url" not in hints[-1]
    snapshot("codex", *hints)


@pytest.mark.parametrize(
    ("url", "line", "command"),
    [
        ("http://0.0.0.0:7", "http://127.0.0.1:7/v1", True),
        ("http://[::]:7", "http://127.0.0.1:7/v1", True),
        ("http://[::1]:7", "http://[::1]:7/v1", False),
        ("http://127.0.0.2:7", "http://127.0.0.2:7/v1", False),
    ],
)
def test_the_command_is_advised_only_if_its_address_would_work(
    url: str, line: str, command: bool, tmp_path: Path
) -> None:
    said = hint_of_codex(url, tmp_path, USER, "turnlane")

    assert f'"{line}"' in said
    assert ("codex on" in said) is command


@pytest.mark.parametrize(
    ("program", "found", "expected"),
    [
        (".venv/bin/turnlane", None, ".venv/bin/turnlane"),
        (".venv/bin/turnlane", "/usr/bin/turnlane", ".venv/bin/turnlane"),
        ("/usr/bin/turnlane", "/usr/bin/turnlane", "turnlane"),
        ("/x/proxy/__main__.py", None, "turnlane"),
    ],
)
def test_turnlane_is_called_as_it_was_started(
    program: str, found: str | None, expected: str
) -> None:
    assert called(program, found) == expected
