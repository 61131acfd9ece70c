"""`turnlane status` and `doctor`, from the command line to the screen and the exit code."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from proxy.cli.main import app
from proxy.cli.status import show_finding
from proxy.status.finding import good, wrong
from tests.testkit.listeners import answering, closed_port


def turnlane(home: Path, *arguments: str, url: str = "http://127.0.0.1:9", **more: str) -> Result:
    environment = {
        "TURNLANE_HOME": str(home),
        "TURNLANE_UPSTREAM": url,
        "CODEX_HOME": str(home.with_name("codex")),
        "COLUMNS": "80",
        **more,
    }
    return CliRunner(env=environment).invoke(app, list(arguments), catch_exceptions=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_the_status_of_nothing_is_a_failure_that_says_what_to_do(home: Path) -> None:
    done, as_json = turnlane(home, "status"), turnlane(home, "status", "--json")
    document = json.loads(as_json.stdout)

    assert (done.exit_code, as_json.exit_code) == (1, 1)
    assert "turnlane serve" in done.stdout
    assert (document["serving"], document["process"]) == (False, None)
    assert document["home"] == str(home)
    assert not home.exists()


@pytest.mark.parametrize("command", ["status", "doctor"])
def test_no_line_ends_in_blanks(command: str, home: Path) -> None:
    lines = turnlane(home, command).stdout.splitlines()

    assert lines == [line.rstrip() for line in lines]


def test_a_terminal_without_such_letters_is_spared_them(home: Path) -> None:
    done = CliRunner(
        env={"TURNLANE_HOME": str(home), "CODEX_HOME": str(home)}, charset="ascii"
    ).invoke(app, ["status"], catch_exceptions=False)

    assert done.stdout.isascii()


def test_a_doctor_that_finds_nothing_wrong_exits_with_0(home: Path) -> None:
    with answering() as port:
        done = turnlane(home, "doctor", url=f"http://127.0.0.1:{port}")

    assert done.exit_code == 0
    assert "XX" not in done.stdout
    assert not home.exists()


def test_a_doctor_names_what_is_wrong_and_exits_with_1(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "keys.json").touch(mode=0o600)
    (home / "keys.json").chmod(0o644)
    with answering() as port:
        done = turnlane(home, "doctor", url=f"http://127.0.0.1:{port}")

    assert done.exit_code == 1
    assert done.stdout.count("XX") == 1
    assert f"-> chmod 600 {home}/keys.json\n" in done.stdout


def test_a_doctor_can_speak_to_programs(home: Path) -> None:
    done = turnlane(home, "doctor", "--json", url=f"http://127.0.0.1:{closed_port()}")
    findings = json.loads(done.stdout)

    (unreached,) = (each for each in findings if each["about"] == "upstream")
    assert done.exit_code == 1
    assert unreached["level"] == "wrong"
    assert set(unreached) == {"about", "level", "said", "mend"}


def test_a_configuration_that_cannot_be_used_is_a_finding_and_not_the_end(
    home: Path, tmp_path: Path
) -> None:
    config = tmp_path / "turnlane.toml"
    config.write_text("[server]\nport = -1\n")
    named = turnlane(home, "doctor", "--config", str(config), "--json")
    set_up = turnlane(home, "doctor", "--json", TURNLANE_CONFIG=str(config))

    for done in (named, set_up):
        first, *others = json.loads(done.stdout)
        assert first["about"] == "config"
        assert "server.port" in first["said"]
        assert first["mend"] == f"$EDITOR {config}"
        assert "lock" in {each["about"] for each in others}


def test_what_mends_it_can_be_copied_however_long_it_is() -> None:
    path = "/a" * 100
    console = Console(file=StringIO(), width=80, color_system=None)
    show_finding(wrong("secrets", f"{path} can be read by others", f"chmod 600 {path}"), console)
    show_finding(good("home", "[bold]well"), console)
    output: StringIO = console.file  # type: ignore[assignment]
    *said, mend, last = output.getvalue().splitlines()

    assert mend.strip() == f"-> chmod 600 {path}"
    assert max(map(len, said)) <= 80
    assert all(line.startswith(" " * 14) for line in said[1:])
    assert last.split() == ["ok", "home", "[bold]well"]
