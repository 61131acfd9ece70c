"""The real Codex on turnlane's accounts: one cache through restarts, one login for both."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import MappingProxyType

import pytest
import trio

from tests.codex.appserver import start_app_server
from tests.codex.authserver import access, start_auth_server, write_login
from tests.codex.checks import assert_clean
from tests.codex.cli import with_chatgpt_login, with_provider
from tests.codex.turnlane import start_turnlane, wait_idle
from tests.codex.upstream import Reply, Request, Step, TurnUpstream, answer

pytestmark = pytest.mark.codex

KEYS = MappingProxyType({f"KEY_{name}": f"sk-secret-{name}" for name in ("A", "B", "C")})
THREE = "".join(f'[accounts.{name.lower()}]\nkey = "env:KEY_{name}"\n' for name in ("A", "B", "C"))


def owners(upstream: TurnUpstream) -> list[str]:
    """Whose credential each turn went up with."""
    return [request.headers["authorization"] for request in upstream.requests.entries]


@pytest.mark.parametrize("ending", ["stop", "kill"])
async def test_a_restart_between_turns_keeps_the_account_and_codex_notices_nothing(
    binary: Path, tmp_path: Path, upstream: TurnUpstream, nursery: trio.Nursery, ending: str
) -> None:
    home = tmp_path / "turnlane"
    running = await start_turnlane(nursery, upstream.url, home, settings=THREE, variables=KEYS)
    codex = with_provider(binary, tmp_path / "client", running.url, websockets=True)
    server = await start_app_server(nursery, codex)
    threads = [await server.start_thread() for _ in range(3)]
    for thread in threads:
        assert (await server.turn(thread, "first words"))["status"] == "completed"
    if ending == "kill":
        await running.crash()
    else:
        assert await running.stop() == 0
    again = await start_turnlane(
        nursery, upstream.url, home, port=running.port, settings=THREE, variables=KEYS
    )

    for thread in threads:
        assert (await server.turn(thread, "second words"))["status"] == "completed"
    await again.wait_websockets(3)
    await server.stop()

    served = owners(upstream)
    assert len(set(served[:3])) == 3
    assert served[:3] == served[3:]
    await assert_clean(again, server.everything())
    assert await again.stop() == 0


async def test_a_spent_account_is_left_and_codex_notices_nothing(
    binary: Path, tmp_path: Path, upstream: TurnUpstream, nursery: trio.Nursery, websockets: bool
) -> None:
    error = {"type": "usage_limit_reached", "message": "spent", "resets_in_seconds": 7200}
    spent: set[str] = set()

    def script(request: Request) -> list[Step]:
        if request.headers["authorization"] in spent:
            return [Reply(status=429, body={"error": error})]
        return [*answer("served")(request)]

    upstream.script = script
    home = tmp_path / "turnlane"
    running = await start_turnlane(nursery, upstream.url, home, settings=THREE, variables=KEYS)
    codex = with_provider(binary, tmp_path / "client", running.url, websockets=websockets)
    server = await start_app_server(nursery, codex)
    thread = await server.start_thread()
    assert (await server.turn(thread, "first words"))["status"] == "completed"
    spent.add(owners(upstream)[0])

    assert (await server.turn(thread, "second words"))["status"] == "completed"
    assert (await server.turn(thread, "third words"))["status"] == "completed"
    await server.stop()

    first, refused, second, third = owners(upstream)
    assert first == refused != second == third
    last = upstream.requests.entries[-1]
    assert all(last.says(words) for words in ("first words", "second words", "third words"))
    await assert_clean(running, server.everything())
    assert await running.stop() == 0


async def test_when_all_are_spent_codex_says_why(
    binary: Path, tmp_path: Path, upstream: TurnUpstream, nursery: trio.Nursery, websockets: bool
) -> None:
    error = {"type": "usage_limit_reached", "message": "spent", "resets_in_seconds": 7200}
    upstream.script = lambda _: [Reply(status=429, body={"error": error})]
    home = tmp_path / "turnlane"
    running = await start_turnlane(nursery, upstream.url, home, settings=THREE, variables=KEYS)
    codex = with_provider(binary, tmp_path / "client", running.url, websockets=websockets)

    run = await codex.ask("try")
    sends = len(upstream.requests)
    again = await codex.ask("again")

    expected = "of its accounts are spent" if websockets else "hit your usage limit"
    assert expected in run.everything
    assert expected in again.everything
    assert len(upstream.requests) == sends == 3
    await wait_idle(running)
    assert await running.stop() == 0


@pytest.mark.parametrize("first", ["codex", "turnlane", "both"])
async def test_codex_and_turnlane_share_a_login_and_neither_is_signed_out(
    binary: Path, tmp_path: Path, upstream: TurnUpstream, nursery: trio.Nursery, first: str
) -> None:
    auth = await start_auth_server(nursery)
    home = tmp_path / "turnlane"
    login = tmp_path / "client" / "codex" / "auth.json"
    settings = f"""
[upstream]
refresh_url = "{auth.url}"
[accounts.shared]
auth_json = "{login}"
"""
    running = await start_turnlane(nursery, upstream.url, home, settings=settings)
    codex = with_chatgpt_login(binary, tmp_path / "client", running.url, auth.url)
    # Codex renews a token with less than five minutes left, turnlane one with less than a minute.
    left = {"codex": 30.0, "turnlane": 30.0, "both": -60.0}[first]
    write_login(login, access(0, time.time() + left), "rt-secret-0")
    if first == "turnlane":
        key = with_provider(binary, tmp_path / "other", running.url, websockets=False)
        assert (await key.ask("by key")).answers == ["hello"]
        assert auth.brought == 1

    runs = [await codex.ask(f"words {number}") for number in range(2)]

    assert [run.answers for run in runs] == [["hello"]] * 2, runs[0].everything
    assert auth.brought == 1, auth.asked
    assert auth.refused == []
    newest = json.loads(login.read_text())["tokens"]
    assert newest["refresh_token"] == "rt-secret-1"
    assert owners(upstream)[-1] == f"Bearer {newest['access_token']}"
    assert login.stat().st_mode & 0o777 == 0o600
    assert "log out" not in "".join(run.everything for run in runs)
    assert await running.stop() == 0
