"""Whether `turnlane serve` could begin, as far as can be seen without doing it."""

from __future__ import annotations

from pathlib import Path

from proxy.status.preflight import hindrance
from proxy.status.processes import Listener
from tests.testkit.snapshots import Snapshot


def hindered(home: Path, taken: Listener | None = None, **environment: str) -> str | None:
    settings = {"TURNLANE_HOME": str(home), **environment}
    return hindrance(home, settings, lambda _host, _port: taken)


def test_nothing_speaks_against_a_home_that_is_not_there_and_a_free_port(tmp_path: Path) -> None:
    assert hindered(tmp_path / "home") is None
    assert list(tmp_path.iterdir()) == []


def test_what_keeps_the_port_is_named(tmp_path: Path, snapshot: Snapshot) -> None:
    taken = (Listener(pid=7, name="x"), Listener(turnlane=True), Listener(problem="<why>"))

    snapshot("doctor", *(hindered(tmp_path, each) for each in taken))


def test_settings_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[server]\nport = -1\n")

    assert "server.port" in (hindered(tmp_path, TURNLANE_CONFIG=str(config)) or "")


def test_a_home_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").touch()

    assert f"{tmp_path}/home" in (hindered(tmp_path / "home") or "")
