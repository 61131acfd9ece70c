"""`turnlane accounts`, from the command line to what it prints and the code it exits with."""

import json
import logging
import os
import pty
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from typer.testing import CliRunner, Result

from harness.wire.upstream import Received, ScriptedUpstream, open_upstream
from proxy.accounts.registry import AccountRegistry
from proxy.accounts.view import AccountId
from proxy.cli.main import app
from proxy.config.load import load
from proxy.keys import KeyRing
from proxy.process.serve import serve
from proxy.runtime import Runtime
from tests.e2e.process import command, environment
from tests.testkit.accounts import access, document, write
from tests.testkit.snapshots import Snapshot

SECONDS = 20
KEY = "sk-secret-one"
WORK = AccountId("work")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def codex(tmp_path: Path) -> Path:
    """A CODEX_HOME with a login."""
    path = tmp_path / "codex"
    path.mkdir()
    write(path / "auth.json", document(access(1, 2e9), "rt-secret-1"))
    return path


def turnlane(
    home: Path, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None
) -> Result:
    runner = CliRunner(env={"TURNLANE_HOME": str(home), "COLUMNS": "120", **(env or {})})
    return runner.invoke(app, ["accounts", *arguments], input=stdin, catch_exceptions=False)


def listed(home: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(turnlane(home, "list", "--json").stdout)
    return found


# Adding.


def test_a_key_comes_from_stdin_and_is_nowhere_in_the_answer(
    home: Path, snapshot: Snapshot
) -> None:
    added = turnlane(home, "add", "work", "--model", "gpt-5*", "--model", "o4", stdin=f"{KEY}\n")

    assert (added.exit_code, added.stdout) == (0, "")
    snapshot("accounts", added.stderr)
    assert KEY not in added.output
    assert [(one["id"], one["kind"]) for one in listed(home)] == [("work", "api_key")]
    assert AccountRegistry(home).all()[WORK].models == ("gpt-5*", "o4")


def test_a_key_may_come_from_a_variable(home: Path) -> None:
    added = turnlane(home, "add", "work", "--env", "MY_KEY", env={"MY_KEY": KEY})
    missing = turnlane(home, "add", "other", "--env", "NO_KEY", stdin=KEY)

    assert (added.exit_code, missing.exit_code) == (0, 2)
    assert "NO_KEY" in missing.stderr
    assert set(AccountRegistry(home).all()) == {"work"}


def read_until(terminal: int, text: bytes) -> bytes:
    """Return what a terminal shows, up to a text; its end is reported by Linux as an error."""
    shown = b""
    with suppress(OSError):
        while text not in shown and (piece := os.read(terminal, 1024)):
            shown += piece
    return shown


def test_a_key_that_is_typed_is_not_echoed(home: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command("accounts", "add", "work"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(home),
        start_new_session=True,
    ) as process:
        os.close(theirs)
        asked = read_until(ours, b"API key of work: ")
        os.write(ours, f"{KEY}\n".encode())
        told = read_until(ours, b"serve` runs")
        code = process.wait(SECONDS)
    os.close(ours)

    assert (code, set(AccountRegistry(home).all())) == (0, {"work"})
    assert b"API key of work: " in asked
    assert KEY.encode() not in asked + told


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (["Work"], KEY),
        (["work"], ""),
        (["work"], f"{KEY}\nmore"),
        (["work"], "sk-secret- one"),
        (["work"], "sk-secret-\0"),
        (["work"], "sk-secret-é"),
        (["work"], "x" * 65537),
        (["work", "--env", ""], KEY),
        (["work", "--model", ""], KEY),
        (["work", "--model", "gpt 5"], KEY),
        (["work", "--organization", "a b"], KEY),
        (["work", "--url", "chatgpt.com"], KEY),
    ],
    ids=[
        *("name", "no-key", "two-lines", "space", "null", "letter", "long"),
        *("env", "no-model", "model", "organization", "url"),
    ],
)
def test_an_invalid_account_is_a_usage_error(
    arguments: list[str], stdin: str, home: Path, snapshot: Snapshot
) -> None:
    refused = turnlane(home, "add", *arguments, stdin=stdin)

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "secret" not in refused.stderr
    snapshot("accounts", refused.stderr)
    assert not home.exists()


@pytest.mark.parametrize("stdin", ["{} <&-", "{} </dev/null", "printf 'sk-\\377' | {}"])
def test_a_stdin_without_a_key_is_not_a_traceback(stdin: str, home: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", stdin.format(" ".join(command("accounts", "add", "work")))],
        env=environment(home),
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )

    assert done.returncode == 2
    assert b"stdin" in done.stderr
    assert b"Traceback" not in done.stderr


def test_adding_an_account_again_says_what_changes(home: Path, snapshot: Snapshot) -> None:
    turnlane(home, "add", "work", "--url", "https://api.example/v1", "--model", "o4", stdin=KEY)
    same, other = (turnlane(home, "add", "work", stdin=key) for key in (KEY, KEY + "2"))
    twice = turnlane(home, "add", "twice", stdin=KEY + "2")
    turnlane(home, "pause", "work")
    paused = turnlane(home, "add", "work", stdin=KEY + "2")

    snapshot("accounts", same.stderr, other.stderr, twice.stderr, paused.stderr)


# Importing.


def test_the_login_of_codex_is_shared_where_it_is(home: Path, codex: Path) -> None:
    imported = turnlane(home, "import", "work", env={"CODEX_HOME": str(codex)})

    assert imported.exit_code == 0
    assert AccountRegistry(home).all()[WORK].auth_json == str(codex / "auth.json")
    assert [(one["kind"], one["standing"]) for one in listed(home)] == [("chatgpt", "ready")]


def test_a_copy_comes_with_a_warning_and_needs_a_login(
    home: Path, codex: Path, snapshot: Snapshot
) -> None:
    copied = turnlane(home, "import", "work", str(codex / "auth.json"), "--copy")
    refused = turnlane(home, "import", "other", str(codex / "none.json"))

    assert (copied.exit_code, refused.exit_code) == (0, 1)
    snapshot("accounts", copied.stderr, refused.stderr, codex=codex)
    assert "rt-secret" not in copied.output
    assert (home / "accounts" / "work.json").exists()


# The rest, while none runs.


def test_an_account_is_paused_resumed_and_removed(home: Path, snapshot: Snapshot) -> None:
    turnlane(home, "add", "work", stdin=KEY)
    states, told = [], []
    for verb in ("pause", "resume"):
        done = turnlane(home, verb, "work")
        assert done.exit_code == 0
        told.append(done.stderr)
        states.append(listed(home)[0]["standing"])
    removed = turnlane(home, "remove", "work")

    assert states == ["paused", "ready"]
    assert removed.exit_code == 0
    snapshot("accounts", *told, removed.stderr)
    assert listed(home) == []
    assert [turnlane(home, x, "work").exit_code for x in ("pause", "resume", "remove")] == [1] * 3


def test_the_table_has_no_colour_outside_a_terminal(home: Path, snapshot: Snapshot) -> None:
    empty = turnlane(home, "list")
    turnlane(home, "add", "work", stdin=KEY)
    shown = turnlane(home, "list")

    snapshot("accounts", empty.stderr)
    assert shown.stdout.split()[:5] == ["account", "state", "usage", "now", "last"]
    assert "work" in shown.stdout
    assert "\x1b" not in shown.stdout


def test_accounts_of_the_configuration_are_listed_and_kept(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "turnlane.toml"
    file.write_text('[accounts.desk]\nkey = "env:MY_KEY"\n')
    run = partial(turnlane, home, env={"TURNLANE_CONFIG": str(file), "MY_KEY": KEY})
    shown, removed, added = (
        run("list", "--json"),
        run("remove", "desk"),
        run("add", "desk", stdin="x"),
    )
    without = turnlane(home, "list", env={"TURNLANE_CONFIG": str(file)})

    assert [one["id"] for one in json.loads(shown.stdout)] == ["desk"]
    assert (removed.exit_code, added.exit_code, without.exit_code) == (1, 1, 0)
    assert "desk" in removed.stderr
    assert "desk" in added.stderr
    assert "desk" in without.stdout


def test_a_preview_is_a_line_for_each_model(home: Path, snapshot: Snapshot) -> None:
    nobody = turnlane(home, "preview", "t")
    turnlane(home, "add", "work", stdin=KEY)
    shown = turnlane(home, "preview", "t", "--model", "gpt-5")
    as_json = turnlane(home, "preview", "t", "--json")
    turnlane(home, "pause", "work")
    paused = turnlane(home, "preview", "t", "--model", "gpt-5")
    key = KeyRing(home).add("desk").key.id
    keyed = turnlane(home, "preview", "t", "--key", key)
    unkeyed = turnlane(home, "preview", "t")

    snapshot("accounts", nobody.stderr, shown.stdout, paused.stdout, unkeyed.stderr)
    assert json.loads(as_json.stdout)["routes"][0]["account"] == "work"
    assert [x.exit_code for x in (nobody, shown, keyed, unkeyed)] == [1, 0, 0, 1]


# In the process that runs.


async def asked_of(running_home: Path, *arguments: str, **more: Any) -> Result:
    call: Callable[[], Result] = partial(turnlane, running_home, *arguments, **more)
    return await trio.to_thread.run_sync(call)


async def models(sent: Received) -> None:
    """Reply with the list of models to requests with the right key."""
    good = sent.headers["authorization"] == f"Bearer {KEY}"
    await sent.reply(200 if good else 401, {"data": []}, [])


@pytest.fixture
async def upstream(nursery: trio.Nursery) -> Any:
    async with open_upstream(models) as upstream:
        yield upstream


@pytest.fixture
async def running(home: Path, upstream: ScriptedUpstream, nursery: trio.Nursery) -> Runtime:
    flags: dict[str, dict[str, object]] = {"server": {"port": 0}, "upstream": {"url": upstream.url}}
    config = load(None, {"TURNLANE_HOME": str(home)}, flags)
    logging.getLogger("proxy").setLevel(logging.WARNING)
    started: Runtime = await nursery.start(serve, config, lambda _url: None)
    return started


async def test_a_change_takes_effect_in_the_running_process(
    running: Runtime, home: Path, snapshot: Snapshot
) -> None:
    with trio.fail_after(SECONDS):
        added = await asked_of(home, "add", "work", stdin=KEY)
        there = len(running.accounts)
        paused = await asked_of(home, "pause", "work")
        preview = await asked_of(home, "preview", "t")
        table = await asked_of(home, "list")
        removed = await asked_of(home, "remove", "work")

    assert {x.exit_code for x in (added, paused, preview, table, removed)} == {0}
    snapshot("accounts", added.stderr, removed.stderr, preview.stdout)
    assert (there, len(running.accounts)) == (1, 0)
    assert "paused" in table.stdout


async def test_a_tested_account_is_good_or_it_is_not(
    running: Runtime, home: Path, upstream: ScriptedUpstream, snapshot: Snapshot
) -> None:
    with trio.fail_after(SECONDS):
        await asked_of(home, "add", "work", stdin=KEY)
        await asked_of(home, "add", "other", stdin="sk-secret-wrong")
        good, bad = await asked_of(home, "test", "work"), await asked_of(home, "test", "other")
        unknown = await asked_of(home, "test", "third")
        as_json = await asked_of(home, "test", "work", "--json")

    assert [x.exit_code for x in (good, bad, unknown, as_json)] == [0, 1, 1, 0]
    snapshot("accounts", good.stdout, bad.stdout, unknown.stderr)
    assert json.loads(as_json.stdout)["credential"] == "good"
    assert [sent.target for sent in upstream.sent] == ["/v1/models"] * 3
