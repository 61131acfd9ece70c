"""Whether `turnlane serve` could begin, as far as can be seen without doing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.status.preflight import hindrance
from proxy.status.processes import Listener


def hindered(home: Path, taken: Listener | None = None, **environment: str) -> str | None:
    settings = {"TURNLANE_HOME": str(home), **environment}
    return hindrance(home, settings, lambda _host, _port: taken)


def test_nothing_speaks_against_a_home_that_is_not_there_and_a_free_port(tmp_path: Path) -> None:
    assert hindered(tmp_path / "home") is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("taken", "said"),
    [
        (Listener(pid=7, name="x"), "127.0.0.1:10110 is taken by another program, pid 7 (x)"),
        (Listener(turnlane=True), "127.0.0.1:10110 is taken by a turnlane with another home"),
        (Listener(problem="not here"), "not here"),
    ],
)
def test_who_has_the_port_is_said(taken: Listener, said: str, tmp_path: Path) -> None:
    assert hindered(tmp_path, taken) == said


def test_settings_that_cannot_be_used_are_said(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[server]\nport = -1\n")

    assert "server.port" in (hindered(tmp_path, TURNLANE_CONFIG=str(config)) or "")


def test_a_home_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "home").touch()

    assert hindered(tmp_path / "home") == f"{tmp_path}/home is no directory"
