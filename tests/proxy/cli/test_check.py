"""`turnlane check`: everything that is wrong is reported at once, each problem with its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.cli.check import check_config, salvage
from tests.testkit.snapshots import Snapshot

WRONG = """
[server]
prot = 1
port = 70000
[upstream]
url = "ftp://x"
silence_seconds = 0
[nonsense]
a = 1
[lanes]
overlap = "maybe"
[accounts.Work]
key = "env:A"
[accounts.good]
key = "env:NOT_SET"
url = "nowhere"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "turnlane.toml"


def environment(file: Path, **more: str) -> dict[str, str]:
    return {"TURNLANE_HOME": str(file.parent / "home"), **more}


def test_every_key_that_is_wrong_is_named(file: Path) -> None:
    file.write_text(WRONG)
    config, problems = salvage(file, environment(file))

    assert config is not None
    assert {problem.key for problem in problems} == {
        *("server.prot", "server.port", "upstream.url", "upstream.silence_seconds"),
        *("nonsense", "lanes.overlap", "accounts.Work", "accounts.good.key", "accounts.good.url"),
    }
    assert len(problems) == 9


def test_an_error_in_the_environment_does_not_hide_one_in_the_file(file: Path) -> None:
    file.write_text('[upstream]\nurl = "ftp://x"\n[server]\nport = 70000\n')
    _, problems = salvage(file, environment(file, TURNLANE_UPSTREAM="gopher://y"))

    assert [problem.key for problem in problems] == ["server.port", "upstream.url", "upstream.url"]
    assert _rest(file) == ["server.port", "upstream.url"]


def _rest(file: Path) -> list[str]:
    return [problem.key for problem in salvage(file, environment(file))[1]]


def test_numbers_that_contradict_each_other_are_reported_once(file: Path) -> None:
    file.write_text("[lanes]\nlimit = 2\nkept = 4\n[server]\nport = 70000\n")
    _, problems = salvage(file, environment(file))

    assert problems[0].key.startswith("lanes.")
    assert len({problem.key for problem in problems}) == len(problems)


@pytest.mark.parametrize("content", ["[server\n", None])
def test_an_unreadable_file_is_the_only_problem(
    content: str | None, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        file.write_text(content)
    code = check_config(file, environment(file))

    assert code == 2
    assert capsys.readouterr().err.startswith(f"turnlane: {file}: ")


def test_a_valid_configuration_is_shown_with_its_destination(
    file: Path, capsys: pytest.CaptureFixture[str], snapshot: Snapshot
) -> None:
    file.write_text("[server]\nport = 7\n")
    codes = (check_config(file, environment(file)), check_config(None, environment(file)))

    assert codes == (0, 0)
    snapshot("check", capsys.readouterr().out, file=file)


def test_everything_that_is_wrong_is_explained(
    file: Path, capsys: pytest.CaptureFixture[str], snapshot: Snapshot
) -> None:
    file.write_text(WRONG)

    assert check_config(file, environment(file)) == 2
    snapshot("check", capsys.readouterr().err)
