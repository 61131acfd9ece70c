"""What is seen of a turnlane: it is asked, and no file is believed or changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from proxy.codex.adoption import State
from proxy.codex.place import Environment
from proxy.control.identity import Answered, Answerer
from proxy.database_file import DATABASE_NAME
from proxy.home.lock import LOCK_NAME, locked
from proxy.journal.summary import LastHour, Past
from proxy.status.overview import Overview, as_json, overview
from tests.proxy.status.kit import NOW, RUNNING, URL, seen
from tests.testkit.listeners import commanded
from tests.testkit.snapshots import Snapshot

PAST = Past(hour=LastHour(turns=3, cached_tokens=3, input_tokens=4), last_turn=NOW - 5)
ANSWERS: Mapping[str, object] = {
    "status": RUNNING,
    "url": {"url": URL, "upstream": "http://upstream.invalid/v1"},
    "past": {"past": msgspec.to_builtins(PAST)},
}


def look(home: Path, problem: str | None = None, now: float = NOW) -> tuple[Overview, list[str]]:
    """Return what is seen if each address gives the same answer, and which were asked."""
    asked: list[str] = []

    def asks(url: str) -> Answered:
        asked.append(url)
        return Answered(by=Answerer.OTHER if problem else Answerer.TURNLANE, problem=problem)

    place = Environment(
        home=home,
        environment={"CODEX_HOME": str(home.with_name("codex"))},
        wall=lambda: now,
        asks=asks,
        walk=lambda: (),
    )
    return overview(place), asked


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


def test_one_that_answers_on_its_socket_and_its_port_serves(home: Path) -> None:
    with commanded(home, ANSWERS):
        found, asked = look(home)

    assert found.serving
    assert (found.url, found.upstream, found.running) == (
        URL,
        "http://upstream.invalid/v1",
        RUNNING,
    )
    assert found.last_hour == PAST.hour
    assert asked == [URL]


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({}, "another program"),
        ({"status": {**RUNNING, "state": "draining"}}, None),
        ({"url": {"error": "unknown command"}}, None),
    ],
    ids=["port", "draining", "no-address"],
)
def test_one_that_runs_without_serving_is_told_apart(
    answers: dict[str, object], problem: str | None, home: Path, snapshot: Snapshot
) -> None:
    with commanded(home, {**ANSWERS, **answers}):
        found, _ = look(home, problem)

    assert not found.serving
    snapshot("status", found.problem)


@pytest.mark.parametrize("said", [{"service": "other"}, {"error": "x"}, []])
def test_a_program_that_is_not_turnlane_is_ignored(said: object, home: Path) -> None:
    with commanded(home, {**ANSWERS, "status": said}):
        found, _ = look(home)

    assert (found.serving, found.running) == (False, None)


@pytest.mark.parametrize("left", ["1\n", "999999999\n", "", "\N{SNOWMAN}"])
def test_a_file_with_a_pid_is_not_believed(left: str, home: Path) -> None:
    (home / LOCK_NAME).write_text(left)
    found, _ = look(home)

    assert (found.running, found.held_by, found.url) == (None, None, None)


def test_a_home_without_a_turnlane_and_one_that_hangs_are_named(
    home: Path, snapshot: Snapshot
) -> None:
    nothing, _ = look(home)
    with locked(home):
        pid = (home / LOCK_NAME).read_text().strip()
        hung, _ = look(home)

    assert (hung.running, hung.held_by) == (None, pid)
    snapshot("status", nothing.problem, hung.problem, home=home, pid=pid)


def test_a_missing_home_is_not_created(tmp_path: Path) -> None:
    found, _ = look(tmp_path / "home")

    assert not found.serving
    assert list(tmp_path.iterdir()) == []


def test_an_unreadable_journal_is_named(home: Path) -> None:
    (home / DATABASE_NAME).write_bytes(b"no journal at all, but long enough to be looked into")

    assert DATABASE_NAME in (look(home)[0].journal_problem or "")


def test_the_adoption_knows_of_the_turns_that_were_seen(home: Path) -> None:
    codex = home.with_name("codex")
    codex.mkdir()
    config = codex / "config.toml"
    config.write_text(f'openai_base_url = "{URL}/v1"\n')
    before = config.stat()
    with commanded(home, {**ANSWERS, "past": {"past": {"last_turn": before.st_mtime + 1}}}):
        found, _ = look(home, now=before.st_mtime + 2)

    assert found.routing.state is State.SEEN
    assert config.stat() == before


@pytest.mark.parametrize("line", ["openai_base_url = 1", "", f'openai_base_url = "{URL}/v1"'])
def test_the_adoption_says_nothing_of_whether_it_serves(line: str, home: Path) -> None:
    codex = home.with_name("codex")
    codex.mkdir()
    (codex / "config.toml").write_text(line)
    with commanded(home, ANSWERS):
        serving, _ = look(home)
    away, _ = look(home)

    assert serving.serving
    assert not away.serving


def test_a_program_reads_the_same(home: Path) -> None:
    document = json.loads(msgspec.json.encode(as_json(seen(last_hour=PAST.hour)), enc_hook=str))

    assert document["serving"] is True
    assert document["process"] == dict(RUNNING)
    assert document["routing"]["state"] == "adopted"
    assert document["hour"]["cache_share"] == 0.75
    assert json.loads(msgspec.json.encode(as_json(seen(None))))["process"] is None
