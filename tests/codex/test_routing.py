"""`turnlane codex` with the real Codex: it goes through turnlane, and everything is put back."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import trio

from proxy.codex.adoption import Adoption, State, adoption
from proxy.codex.destination import read_sight
from proxy.codex.files import Disk
from proxy.codex.place import Environment
from proxy.codex.saved import read_note
from tests.codex.appserver import start_app_server
from tests.codex.checks import assert_clean
from tests.codex.cli import API_KEY, QUIET, Codex
from tests.codex.turnlane import Turnlane, environment
from tests.codex.upstream import TurnUpstream, answer, start_upstream

pytestmark = pytest.mark.codex

ACCOUNT = "aaaaaaaa-1111-4111-8111-aaaaaaaaaaaa"
NEXT_YEARS_SECONDS = 10 * 365 * 24 * 3600
COMMAND_SECONDS = 20
CONFIG = f'# my settings\nmodel = "gpt-5.5"   # the usual\n{QUIET}'


def key_login() -> dict[str, Any]:
    return {"OPENAI_API_KEY": API_KEY}


def chatgpt_login() -> dict[str, Any]:
    """Return a login as `codex login` leaves it, with unsigned tokens."""
    claims = {
        "exp": int(time.time()) + NEXT_YEARS_SECONDS,
        "email": "user@example.invalid",
        "https://api.openai.com/auth": {
            "chatgpt_account_id": ACCOUNT,
            "chatgpt_user_id": "user-test",
            "chatgpt_plan_type": "plus",
        },
    }
    token = f"{_part({'alg': 'none', 'typ': 'JWT'})}.{_part(claims)}.{_part({})}"
    tokens = {"id_token": token, "access_token": token, "refresh_token": "r", "account_id": ACCOUNT}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": now}


def _part(claims: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()


LOGINS = {"key": key_login, "chatgpt": chatgpt_login}


def installed(binary: Path, root: Path, login: dict[str, Any]) -> Codex:
    """A Codex that goes to its provider, as it is before turnlane."""
    codex = Codex(binary=binary, root=root)
    codex.home.mkdir(parents=True)
    codex.cwd.mkdir()
    (codex.home / "config.toml").write_text(CONFIG)
    (codex.home / "auth.json").write_text(json.dumps(login))
    return codex


@pytest.fixture
def codex(binary: Path, tmp_path: Path) -> Codex:
    return installed(binary, tmp_path / "client", key_login())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the `turnlane` fixture has its TURNLANE_HOME."""
    return tmp_path / "turnlane" / "turnlane"


async def command(codex: Codex, home: Path, *arguments: str) -> str:
    """What `turnlane ARGUMENTS` prints; it must succeed."""
    with trio.fail_after(COMMAND_SECONDS):
        done = await trio.run_process(
            [sys.executable, "-m", "turnlane", *arguments],
            stdin=subprocess.DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=codex.cwd,
            env=environment(codex.root, CODEX_HOME=str(codex.home), TURNLANE_HOME=str(home)),
        )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def judged(codex: Codex, home: Path) -> Adoption:
    place = Environment(home=home, environment={"CODEX_HOME": str(codex.home)})
    return adoption(place, read_sight(place, here=None), None)


async def next_second(home: Path) -> None:
    """A start time is known by the second, and up to one second early."""
    note = read_note(Disk(), home)
    assert note is not None
    await trio.sleep(max(0.0, note.wall + 2 - time.time()))


@pytest.mark.parametrize("login", LOGINS)
async def test_codex_goes_through_turnlane_after_on_and_everything_is_put_back_by_off(
    login: str,
    binary: Path,
    tmp_path: Path,
    upstream: TurnUpstream,
    turnlane: Turnlane,
    home: Path,
) -> None:
    codex = installed(binary, tmp_path / "client", LOGINS[login]())
    await command(codex, home, "codex", "on")
    run = await codex.ask("hello")
    status = await assert_clean(turnlane, run.everything)
    during = (codex.home / "config.toml").read_text()
    await command(codex, home, "codex", "off")

    assert run.code == 0, run.everything
    assert run.answers == ["hello"]
    assert status["outcomes"] == {"completed": 1}
    (request,) = upstream.requests.entries
    assert request.headers.get("chatgpt-account-id") == (ACCOUNT if login == "chatgpt" else None)
    assert tomllib.loads(during)["openai_base_url"] == turnlane.url
    assert (codex.home / "config.toml").read_text() == CONFIG


async def test_what_codex_itself_writes_meanwhile_stays(
    codex: Codex, turnlane: Turnlane, home: Path
) -> None:
    await command(codex, home, "codex", "on")
    with trio.fail_after(COMMAND_SECONDS):
        await trio.run_process(
            [str(codex.binary), "features", "enable", "unbounded_connection_retries"],
            capture_stdout=True,
            capture_stderr=True,
            cwd=codex.cwd,
            env=codex.environment(),
        )
    changed = tomllib.loads((codex.home / "config.toml").read_text())
    await command(codex, home, "codex", "off")
    after = tomllib.loads((codex.home / "config.toml").read_text())

    assert changed.pop("openai_base_url") == turnlane.url
    assert changed["features"]["unbounded_connection_retries"] is True
    assert after == changed


async def test_an_app_server_from_before_is_pending_until_it_is_restarted(
    codex: Codex, turnlane: Turnlane, home: Path, nursery: trio.Nursery
) -> None:
    old = await start_app_server(nursery, codex)
    await trio.sleep(2)
    await command(codex, home, "codex", "on")
    pending = judged(codex, home)
    said = json.loads(await command(codex, home, "codex", "show", "--json"))
    await old.stop()
    nobody = judged(codex, home)
    await next_second(home)
    young = await start_app_server(nursery, codex)
    adopted = judged(codex, home)
    turn = await young.turn(await young.start_thread(), "hello")
    seen = json.loads(await command(codex, home, "codex", "show", "--json"))

    assert pending.state is State.PENDING
    assert [(client.pid, client.kind) for client in pending.stale] == [(old.pid, "app-server")]
    assert said["adoption"]["state"] == "pending-client-restart"
    assert [client["pid"] for client in said["adoption"]["stale"]] == [old.pid]
    assert (nobody.state, nobody.weak) == (State.ADOPTED, True)
    assert (adopted.state, adopted.weak) == (State.ADOPTED, False)
    assert turn["status"] == "completed"
    assert (seen["adoption"]["state"], seen["adoption"]["stale"]) == ("seen", [])
    await young.stop()


async def test_an_open_thread_goes_on_as_before_and_a_new_one_of_the_same_process_does_not(
    codex: Codex, turnlane: Turnlane, upstream: TurnUpstream, home: Path, nursery: trio.Nursery
) -> None:
    direct = await start_upstream(nursery, answer("direct"))
    (codex.home / "config.toml").write_text(f'openai_base_url = "{direct.url}"\n{CONFIG}')
    old = await start_app_server(nursery, codex)
    thread = await old.start_thread()
    await old.turn(thread, "one")
    await command(codex, home, "codex", "on")
    await old.turn(thread, "two")
    await old.turn(await old.start_thread(), "three")
    await old.stop()

    assert (len(direct.requests), len(upstream.requests)) == (2, 1)
    assert upstream.requests.entries[0].says("three")


async def test_an_app_server_of_another_home_does_not_count(
    codex: Codex,
    binary: Path,
    tmp_path: Path,
    turnlane: Turnlane,
    home: Path,
    nursery: trio.Nursery,
) -> None:
    other = await start_app_server(nursery, installed(binary, tmp_path / "other", key_login()))
    await trio.sleep(2)
    await command(codex, home, "codex", "on")
    found = judged(codex, home)
    await other.stop()

    assert (found.state, found.weak) == (State.ADOPTED, True)


async def test_with_a_key_the_provider_that_show_prints_serves_both_logins(
    binary: Path, tmp_path: Path, upstream: TurnUpstream, turnlane: Turnlane, home: Path
) -> None:
    clients = {name: installed(binary, tmp_path / name, login()) for name, login in LOGINS.items()}
    key = (await command(clients["key"], home, "keys", "add", "desk")).strip()
    for codex in clients.values():
        shown = json.loads(await command(codex, home, "codex", "show", "--json"))
        (codex.home / "config.toml").write_text(shown["provider"] + QUIET)
        run = await codex.ask("hello", more={"TURNLANE_KEY": key})
        after = json.loads(await command(codex, home, "codex", "show", "--json"))

        assert run.answers == ["hello"], run.everything
        assert after["url"] == turnlane.url
        assert after["adoption"]["state"] in {"adopted", "seen"}
    accounts = [request.headers.get("chatgpt-account-id") for request in upstream.requests.entries]
    assert accounts == [None, ACCOUNT]
    assert not any("x-turnlane-key" in request.headers for request in upstream.requests.entries)


async def test_a_profile_that_show_names_really_goes_another_way(
    codex: Codex, upstream: TurnUpstream, turnlane: Turnlane, home: Path
) -> None:
    await command(codex, home, "codex", "on")
    elsewhere = f'openai_base_url = "{upstream.url}"\n'
    (codex.home / "direct.config.toml").write_text(elsewhere)
    shown = json.loads(await command(codex, home, "codex", "show", "--json"))
    run = await codex.ask("hello", options=("--profile", "direct"), seconds=90)
    status = await turnlane.status()

    assert ["direct.config.toml" in text for text in shown["bypasses"]] == [True]
    assert run.answers == ["hello"], run.everything
    assert status["outcomes"] == {}
