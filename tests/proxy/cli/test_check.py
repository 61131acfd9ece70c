"""Check: everything that is wrong is said at once, each thing by its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.cli.check import check_config, salvage

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


def test_what_is_wrong_in_the_environment_hides_nothing_of_the_file(file: Path) -> None:
    file.write_text('[upstream]\nurl = "ftp://x"\n[server]\nport = 70000\n')
    _, problems = salvage(file, environment(file, TURNLANE_UPSTREAM="gopher://y"))

    assert [problem.key for problem in problems] == ["server.port", "upstream.url", "upstream.url"]
    assert _rest(file) == ["server.port", "upstream.url"]


def _rest(file: Path) -> list[str]:
    return [problem.key for problem in salvage(file, environment(file))[1]]


def test_numbers_that_do_not_go_together_are_said_once(file: Path) -> None:
    file.write_text("[lanes]\nlimit = 2\nkept = 4\n[server]\nport = 70000\n")
    _, problems = salvage(file, environment(file))

    assert problems[0].key.startswith("lanes.")
    assert len({problem.key for problem in problems}) == len(problems)


@pytest.mark.parametrize("content", ["[server\n", None])
def test_a_file_that_is_none_is_the_one_problem(
    content: str | None, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        file.write_text(content)
    code = check_config(file, environment(file))

    assert code == 2
    assert capsys.readouterr().err.startswith(f"turnlane: {file}: ")


def test_a_good_one_is_named_with_where_it_leads(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("[server]\nport = 7\n")
    codes = (check_config(file, environment(file)), check_config(None, environment(file)))
    with_file, without = capsys.readouterr().out.splitlines()

    assert codes == (0, 0)
    assert with_file.startswith(f"configuration good ({file}): 127.0.0.1:7 -> ")
    assert without.startswith("configuration good (no file, all defaults): 127.0.0.1:10110 -> ")
