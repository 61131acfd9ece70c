"""The operator's commands, from the command line to what they print and the code they exit with."""

import json
import logging
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from typer.testing import CliRunner, Result

from lifecycle import Ask, PrincipalId, RootId, ThreadId
from proxy.cli.log import show_log
from proxy.cli.main import app
from proxy.config.load import load
from proxy.database_file import DATABASE_NAME
from proxy.home.lock import locked
from proxy.journal.record import Outcome, Transport, TurnRecord
from proxy.keys import KeyRing
from proxy.process.serve import serve
from proxy.responses.events import TokenUsage
from proxy.runtime import Runtime
from tests.testkit.home import journal, keep
from tests.testkit.snapshots import Snapshot

SECONDS = 20
WALL = 1_800_000_000.0
PLAIN = TurnRecord(
    wall=WALL, principal="local", transport=Transport.HTTP, outcome=Outcome.COMPLETED
)
REFUSED = replace(
    PLAIN,
    outcome=Outcome.REFUSED,
    refusal="workflow_concurrency_exhausted",
    transport=Transport.WEBSOCKET,
    lane="a" * 32,
    root="b" * 32,
    worker=True,
    usage=TokenUsage(input_tokens=0),
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def turnlane(home: Path, *arguments: str) -> Result:
    runner = CliRunner(env={"TURNLANE_HOME": str(home), "COLUMNS": "200"})
    return runner.invoke(app, list(arguments), catch_exceptions=False)


# Keys.


def test_a_key_is_shown_once_alone_on_stdout(home: Path, snapshot: Snapshot) -> None:
    made = turnlane(home, "keys", "add", "[bold]desk[/bold]")
    table, listed = turnlane(home, "keys", "list"), turnlane(home, "keys", "list", "--json")
    secret = made.stdout.strip()

    assert (made.exit_code, table.exit_code) == (0, 0)
    assert made.stdout == secret + "\n"
    assert KeyRing(home).holder(secret) is not None
    (key,) = KeyRing(home).all()
    snapshot("keys", made.stderr, id=key.id)
    assert secret not in made.stderr + table.output + listed.output
    assert "[bold]desk[/bold]" in table.stdout
    assert set(json.loads(listed.stdout)[0]) == {"id", "name", "created"}


def test_a_revoked_key_is_gone_and_the_last_one_comes_with_a_warning(
    home: Path, snapshot: Snapshot
) -> None:
    for name in ("one", "other"):
        turnlane(home, "keys", "add", name)
    one, other = (key.id for key in KeyRing(home).all())
    first, second = turnlane(home, "keys", "revoke", one), turnlane(home, "keys", "revoke", other)
    again = turnlane(home, "keys", "revoke", one)

    assert (first.exit_code, second.exit_code, again.exit_code) == (0, 0, 1)
    assert len(KeyRing(home)) == 0
    snapshot("keys", first.stderr, second.stderr, again.stderr, one=one, other=other)


def test_a_name_that_is_not_printable_makes_no_key(home: Path, snapshot: Snapshot) -> None:
    refused = turnlane(home, "keys", "add", "a\nb")

    assert (refused.exit_code, refused.stdout) == (1, "")
    snapshot("keys", refused.stderr)


# The log.


def test_the_log_is_one_line_for_each_record(home: Path) -> None:
    with journal(home, PLAIN, REFUSED):
        shown = turnlane(home, "log")
    titles, plain, refused = shown.stdout.splitlines()

    assert shown.exit_code == 0
    assert titles.split()[:3] == ["time", "transport", "outcome"]
    assert plain.split()[2:4] == ["http", "completed"]
    assert " ".join(refused.split()[2:]) == (
        "websocket refused workflow_concurrency_exhausted - aaaaaaaa bbbbbbbb worker 0 ? 0 0 ? ?"
    )


def test_the_log_as_json_has_everything(home: Path) -> None:
    with journal(home, PLAIN, REFUSED):
        shown = turnlane(home, "log", "--json", "--lines", "1")
    (record,) = map(json.loads, shown.stdout.splitlines())

    assert record["refusal"] == "workflow_concurrency_exhausted"
    assert record["usage"] == {"input_tokens": 0, "cached_tokens": None, "output_tokens": None}
    assert record["root"] == "b" * 32


def test_a_log_that_is_followed_shows_every_record_until_it_is_interrupted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        journal(home, *(replace(PLAIN, total_ms=float(x)) for x in range(5))) as database,
        locked(home),
    ):
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                raise KeyboardInterrupt
            keep(database, *(replace(PLAIN, total_ms=100.0 + x) for x in range(4)))

        code = show_log(home, lines=2, follow=True, as_json=True, pause=pause)
    shown = [json.loads(line)["total_ms"] for line in capsys.readouterr().out.splitlines()]

    assert code == 0
    assert shown == [3, 4, *(100, 101, 102, 103) * 2]


def test_what_a_turnlane_wrote_last_is_followed_to_its_end(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with journal(home, PLAIN) as database, ExitStack() as running:
        running.enter_context(locked(home))
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 1:
                keep(database, replace(PLAIN, total_ms=7.0))
                running.close()
            if len(pauses) == 3:
                raise KeyboardInterrupt

        show_log(home, lines=2, follow=True, as_json=True, pause=pause)
    shown = [json.loads(line)["total_ms"] for line in capsys.readouterr().out.splitlines()]

    assert shown == [0, 7]


def test_a_home_where_nothing_runs_is_read_without_a_trace(home: Path) -> None:
    with journal(home, PLAIN):
        pass
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    shown = turnlane(home, "log")

    assert len(shown.stdout.splitlines()) == 2
    assert {path.name: path.read_bytes() for path in home.iterdir()} == before


@pytest.mark.parametrize(("columns", "last"), [("80", "in/cached/out account"), ("200", "account")])
def test_the_log_is_as_wide_as_columns_says(columns: str, last: str, home: Path) -> None:
    runner = CliRunner(env={"TURNLANE_HOME": str(home), "COLUMNS": columns})
    titles = runner.invoke(app, ["log"], catch_exceptions=False).stdout

    assert titles.rstrip().endswith(last)
    assert ("transport" in titles) is (columns == "200")


def test_a_file_that_is_not_a_journal_is_named(home: Path) -> None:
    home.mkdir()
    (home / DATABASE_NAME).write_bytes(b"nonsense" * 99)
    shown = turnlane(home, "log")

    assert shown.exit_code == 2
    assert DATABASE_NAME in shown.stderr


# A turnlane that runs.


@pytest.mark.parametrize(
    "arguments", [["workflows"], ["workflows", "clear", "ab"]], ids=["list", "clear"]
)
def test_workflows_need_a_running_turnlane(
    arguments: list[str], home: Path, snapshot: Snapshot
) -> None:
    asked = turnlane(home, *arguments)

    assert (asked.exit_code, asked.stdout) == (1, "")
    snapshot("workflows", asked.stderr, home=home)


async def asked_of(running_home: Path, *arguments: str) -> Result:
    return await trio.to_thread.run_sync(turnlane, running_home, *arguments)


@pytest.fixture
async def running(home: Path, nursery: trio.Nursery) -> Runtime:
    flags: dict[str, dict[str, object]] = {"server": {"port": 0}}
    config = load(None, {"TURNLANE_HOME": str(home)}, flags)
    logging.getLogger("proxy").setLevel(logging.WARNING)
    started: Runtime = await nursery.start(serve, config, lambda _url: None)
    return started


async def test_roots_are_listed_and_cleared_and_both_are_in_the_log(
    running: Runtime, home: Path, snapshot: Snapshot
) -> None:
    root = RootId("ab" * 16)
    ask = Ask(principal=PrincipalId("local"), root=root, thread=ThreadId("t"))
    with trio.fail_after(SECONDS):
        async with running.admission.lease(ask) as lease:
            lease.sent()
            table = await asked_of(home, "workflows")
            listed = await asked_of(home, "workflows", "--json")
        cleared = await asked_of(home, "workflows", "clear", root[:8])
        unknown = await asked_of(home, "workflows", "clear", "ff")
        assert running.database is not None
        await running.database.wait_write()
        log = await asked_of(home, "log", "--json")

    assert (table.exit_code, cleared.exit_code, unknown.exit_code) == (0, 0, 1)
    assert root[:16] in table.stdout
    snapshot("workflows", cleared.stderr, unknown.stderr)
    (shown,) = json.loads(listed.stdout)
    assert (shown["root"], shown["active"], shown["interactive_sends"]) == (root, 1, 1)
    assert running.admission.workflows.each(trio.current_time())[root].interactive_sends == 0
    records: list[dict[str, Any]] = [json.loads(line) for line in log.stdout.splitlines()]
    assert [record["outcome"] for record in records] == ["listed", "listed", "cleared"]
    assert records[-1]["root"] == root
