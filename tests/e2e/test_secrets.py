"""No secret of an account leaves it: not through any refusal, file, log, status or answer.

The process runs with accounts of both kinds. Each account meets every refusal there is, alone, so
that it is the one that is sent to; then everything that was written or said is searched.
"""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from harness.wire.client import request
from harness.wire.upstream import Received, ScriptedUpstream, at_once, open_upstream
from tests.e2e.process import Child, command, environment, open_child
from tests.testkit.wire import create, named, post

pytestmark = pytest.mark.load  # processes of its own: seconds each

SECONDS = 60
MARK: Final = b"-secret-"
"""In every secret here: `sk` is a key, `at`, `rt` and `it` are tokens, `ac` an account's id, and
`cl` is the client's own login."""
Refusal = tuple[int, Any, list[tuple[str, str]]]

REFUSALS: Final[Mapping[str, Refusal]] = {
    "server error": (500, {"error": {"code": "server_error"}}, []),
    "overload": (503, {"error": {"code": "overloaded"}}, [("retry-after", "1")]),
    "pace": (429, {"error": {"code": "rate_limit_exceeded"}}, [("retry-after", "1")]),
    "credential": (401, {"error": {"code": "invalid_api_key"}}, []),
    "fault": (400, {"error": {"code": "invalid_request_error"}}, []),
}
QUOTA: Final[Refusal] = (
    429,
    {"error": {"type": "usage_limit_reached", "resets_in_seconds": 9}},
    [],
)
PAYMENT: Final[Refusal] = (402, {"error": {"code": "insufficient_quota"}}, [])
AT_LAST: Final = {"key": PAYMENT, "login": QUOTA, "gone": QUOTA, "copied": PAYMENT}
"""After these an account is spent, and is not sent to again."""
OWN: Final = {
    "key": {"sk-secret-key"},
    "login": {"at-secret-login", "ac-secret-login"},
    "refreshed": {"at-secret-fresh", "ac-secret-login"},
    "gone": {"at-secret-gone", "ac-secret-gone"},
    "copied": {"at-secret-copied", "ac-secret-copied"},
}
"""What the requests of each account may carry."""


@dataclass(slots=True, eq=False)
class Scene:
    """A running turnlane, and all that it has said to anybody."""

    child: Child
    home: Path
    secret: str
    upstream: ScriptedUpstream
    said: list[bytes] = field(default_factory=list)
    refusal: Refusal | None = None
    threads: int = 0

    async def script(self, sent: Received) -> None:
        if sent.target.partition("?")[0] == "/v1/models":
            await sent.reply(200, {"data": []}, [])
        elif self.refusal is not None:
            await sent.reply(*self.refusal)
        else:
            await at_once(sent)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of a client that sends a login of its own, unasked."""
        return {
            "x-turnlane-key": self.secret,
            "authorization": "Bearer cl-secret-own",
            "chatgpt-account-id": "cl-secret-account",
            "openai-organization": "cl-secret-organization",
        }

    async def turn(self) -> int:
        """Run one turn on a thread of its own; return its status."""
        self.threads += 1
        client = await self.child.proxy.connect()
        body = b'{"stream":true,"model":"m","input":[]}'
        await client.send(post({**self.headers, **named(f"t{self.threads}")}, body))
        answer = await client.answer()
        self.said += [repr(answer.headers).encode(), answer.body]
        await client.hang_up()
        return answer.status

    async def turn_over_websocket(self) -> None:
        self.threads += 1
        socket = await self.child.proxy.websocket(self.headers)
        await socket.send(create(f"t{self.threads}"))
        event: dict[str, Any] = {}
        while event.get("type") not in ("error", "response.completed"):
            event = await socket.event()
            self.said.append(json.dumps(event).encode())
        await socket.client.hang_up()

    async def control(self, verb: str, /, **more: Any) -> dict[str, Any]:
        return await self.line(json.dumps({"command": verb, **more}).encode())

    async def line(self, line: bytes) -> dict[str, Any]:
        async with await trio.open_unix_socket(self.home / "control.sock") as stream:
            await stream.send_all(line + b"\n")
            answer = b"".join([piece async for piece in stream])
        self.said.append(answer)
        found: dict[str, Any] = json.loads(answer)
        return found

    async def only(self, account: str) -> None:
        """Send to this account alone, and forget what trouble it had."""
        for each in (await self.control("accounts.list"))["accounts"]:
            paused = each["id"] != account
            await self.control(f"accounts.{'pause' if paused else 'resume'}", name=each["id"])
        await self.control("accounts.test", name=account)

    async def get(self, target: str) -> None:
        client = await self.child.proxy.connect()
        await client.send(request("GET", target, {**self.headers, "connection": "close"}))
        answer = await client.answer("GET")
        assert answer.status == 200
        self.said.append(answer.body)

    async def run(self, *arguments: str) -> bytes:
        done = await run(self.home, *arguments)
        self.said += [done.stdout, done.stderr]
        return done.stdout


async def run(
    home: Path, *arguments: str, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return await trio.run_process(
        command(*arguments),
        env=environment(home),
        stdin=stdin,
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )


def write_login(path: Path, name: str) -> None:
    tokens = {
        "id_token": f"it-secret-{name}",
        "access_token": f"at-secret-{name}",
        "refresh_token": f"rt-secret-{name}",
        "account_id": f"ac-secret-{name}",
    }
    path.write_text(json.dumps({"auth_mode": "chatgpt", "tokens": tokens}))
    path.chmod(0o600)


async def authorize(sent: Received) -> None:
    """One refresh token is good, and each answer repeats what it was asked with."""
    token = sent.json["refresh_token"]
    if token == "rt-secret-login":
        fresh = {name: f"{name[0]}t-secret-fresh" for name in ("access_token", "refresh_token")}
        await sent.reply(200, {**fresh, "id_token": "it-secret-fresh"}, [])
    else:
        error = {"code": "refresh_token_reused", "message": f"{token} was used before"}
        await sent.reply(401, {"error": error}, [])


@asynccontextmanager
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """Accounts of every kind: one whose token can be refreshed, one whose cannot, a copy of a
    login, and one whose provider cannot be reached."""
    home, codex = tmp_path / "home", tmp_path / "codex"
    codex.mkdir()
    for name in ("login", "gone", "copied"):
        write_login(codex / f"{name}.json", name)
    async with open_upstream() as upstream, open_upstream(authorize) as auth:
        config = tmp_path / "turnlane.toml"
        config.write_text(f'[upstream]\nrefresh_url = "{auth.url}/token"\nsends = 3\n')
        secret = (await run(home, "keys", "add", "desk")).stdout.decode().strip()
        added = await run(home, "accounts", "add", "key", stdin=b"sk-secret-key")
        async with open_child(home, upstream.url, "--config", str(config)) as child:
            made = Scene(child=child, home=home, secret=secret, upstream=upstream)
            made.said += [added.stdout, added.stderr]
            upstream.script = made.script
            for name in ("login", "gone", "copied"):
                path, copy = str(codex / f"{name}.json"), name == "copied"
                await made.control("accounts.import", name=name, path=path, copy=copy)
            nowhere = "http://127.0.0.1:1/v1"
            await made.control("accounts.add", name="dead", secret="sk-secret-dead", url=nowhere)
            yield made


def files(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_file() and path.name != "stderr.txt"]


def keeps_a_secret(path: Path) -> bool:
    return path.parent.name == "accounts" and path.suffix in (".key", ".json")


def leaks(texts: Iterable[bytes], key: str) -> list[bytes]:
    """Where a secret stands, with what stands around it."""
    places = ((text, text.find(mark)) for text in texts for mark in (MARK, key.encode()))
    return [text[max(0, at - 60) : at + 60] for text, at in places if at >= 0]


async def meet_every_refusal(made: Scene) -> None:
    """Each account alone, then all of them together."""
    accounts = ("key", "login", "gone", "copied", "dead")
    statuses: set[int] = set()
    for refusals in (*(dict.fromkeys(accounts, each) for each in REFUSALS.values()), AT_LAST):
        for account, refusal in refusals.items():
            made.refusal = None
            await made.only(account)
            made.refusal = refusal
            statuses.add(await made.turn())
            await made.turn_over_websocket()
    for account in accounts:
        await made.control("accounts.resume", name=account)
    for _ in range(4):
        statuses.add(await made.turn())
    assert statuses >= {400, 429, 500, 502, 503}


async def ask_everything(made: Scene) -> None:
    await made.get("/status")
    await made.get("/healthz")
    await made.control("status")
    await made.control("accounts.list")
    await made.control("accounts.preview", thread="t1")
    for name, secret in (("Bad Name", "sk-secret-bad"), ("spaced", "sk-secret- x"), ("none", 5)):
        refused = await made.control("accounts.add", name=name, secret=secret)
        assert "error" in refused
    await made.control("accounts.add", name="none", secret={"a": "sk-secret-deep"})
    await made.line(b'{"command":"accounts.add","secret":"sk-secret-half"')
    await made.control("accounts.import", name="none", path=str(made.home / "lock"))
    await made.run("accounts", "list", "--json")
    await made.run("accounts", "test", "key")
    await trio.sleep(0.6)  # the journal is written twice a second
    records = await made.run("log", "--json", "--lines", "1000")
    assert len(records.splitlines()) >= made.threads


async def test_no_secret_goes_anywhere_but_to_the_upstream_of_its_account(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        async with scene(tmp_path) as made:
            await meet_every_refusal(made)
            await ask_everything(made)
            running = files(made.home)
            said = [*made.said, *(x.read_bytes() for x in running if not keeps_a_secret(x))]
            assert await made.child.stop() == 0
            log = made.child.log.read_bytes()
    left = files(made.home)
    said += [log, *(x.read_bytes() for x in left if not keeps_a_secret(x))]

    assert leaks(said, made.secret) == []
    assert b"account login: unauthorized" in log, "the log is not of these refusals"
    assert {path.name for path in running} >= {"journal.sqlite3", "journal.sqlite3-wal"}
    assert {path.name for path in left if MARK in path.read_bytes()} == {
        "key.key",
        "dead.key",
        "copied.json",
    }
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in left}
    assert {name for name, mode in modes.items() if mode != 0o600} == set()
    assert senders(made) == set(OWN)


def senders(made: Scene) -> set[str]:
    """The accounts that requests came from; each carries what is its own and nothing else."""
    found = set()
    for sent in made.upstream.sent:
        text = json.dumps([sent.target, sent.headers, sent.body.decode()])
        words = {word for word in text.replace('"', " ").split() if MARK.decode() in word}
        (sender,) = (name for name, own in OWN.items() if own == words)
        assert made.secret not in text
        found.add(sender)
    return found
