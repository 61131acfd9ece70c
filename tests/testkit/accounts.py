"""Accounts for tests: fakes whose name shows in their authorization, views and decisions of routing
in few words, and logins with an auth server that answers as it is told.
"""

import base64
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import trio

from proxy.accounts.account import Account
from proxy.accounts.credentials.auth_json import CLAIMS
from proxy.accounts.credentials.chatgpt import MARGIN_SECONDS, ChatGptLogin
from proxy.accounts.credentials.refresh import CredentialFailure, Refresher
from proxy.accounts.route import (
    Binding,
    Route,
    RouteMemory,
    RouteRequest,
    RoutingSettings,
    Withheld,
)
from proxy.accounts.routing import route
from proxy.accounts.spec import AccountSpec
from proxy.accounts.usage import QuotaUsage
from proxy.accounts.view import ANY, AccountId, AccountView, Cooldown, Family, Window
from proxy.headers import HeaderList
from tests.testkit.runtime import WALL, Bench
from tests.testkit.upstream import Sent

NOW = WALL
HOUR = 3600.0
DAY = 86_400.0


# Accounts.


@dataclass(slots=True)
class FakeCredential:
    """Gives what is queued in `will`, then its name's token for ever."""

    name: str
    fingerprint: str = ""
    version: str = ""
    renewed: str | None = None
    """The token that a renewal returns; None refuses it."""
    will: deque[CredentialFailure] = field(default_factory=deque)
    renewals: int = 0

    def __post_init__(self) -> None:
        self.fingerprint = self.fingerprint or f"print-{self.name}"

    async def headers(self, wall: float) -> HeaderList | CredentialFailure:
        if self.will:
            return self.will.popleft()
        return authorized(self.name)

    async def renew(self, used: bytes, wall: float) -> HeaderList | CredentialFailure:
        self.renewals += 1
        if self.renewed is None:
            return CredentialFailure(final=True, message="refused")
        return authorized(self.renewed)


def authorized(name: str) -> HeaderList:
    return [(b"authorization", bearer(f"sk-secret-{name}"))]


def account(
    name: str,
    used: float | None = None,
    *,
    credential: FakeCredential | None = None,
    models: tuple[str, ...] | None = None,
    url: str | None = None,
) -> Account:
    """An account whose five-hour window is used up to `used` percent, or of which nothing is
    known."""
    spec = AccountSpec(key="env:UNUSED", models=models, url=url)
    made = Account(AccountId(name), spec, credential or FakeCredential(name))
    if used is not None:
        report(made, used)
    return made


def report(known: Account, used: float, *, now: float = WALL) -> None:
    """The account's usage as it becomes known now."""
    window = Window(name="primary", used_percent=used, resets_at=now + 5 * HOUR, minutes=300)
    known.health.learn(QuotaUsage(windows=(window,)), now)


def served_by(bench: Bench) -> list[str]:
    """The accounts that each physical send went out on, by name."""
    return [owner(sent) for sent in bench.upstream.sent]


def owner(sent: Sent) -> str:
    (authorization,) = sent.header("authorization")
    return authorization.removeprefix("Bearer sk-secret-")


def moves(bench: Bench) -> list[tuple[str | None, str | None, str | None]]:
    """What each record says of its account: who, how and why."""
    return [(record.account, record.move, record.reason) for record in bench.records]


def used_headers(used: float, *, window: str = "primary") -> Sequence[tuple[bytes, bytes]]:
    """How a reply reports usage."""
    prefix = f"x-codex-{window}-".encode()
    return (
        (prefix + b"used-percent", str(used).encode()),
        (prefix + b"window-minutes", b"300"),
        (prefix + b"reset-after-seconds", b"7200"),
    )


# What routing sees and decides.

RESET = NOW + HOUR
MODEL = Family("gpt-5")
OTHER_MODEL = Family("gpt-4")
A, B, C, D = (AccountId(name) for name in "abcd")
CACHE_FIRST = RoutingSettings()
CAPACITY_FIRST = RoutingSettings(cache_affinity=False)


def window(used: float, resets_at: float = RESET, name: str = "primary") -> Window:
    return Window(name=name, used_percent=used, resets_at=resets_at)


def view(account: str, used: float | None = 10.0, **changes: Any) -> AccountView:
    """An account with one window; with None its usage is unknown."""
    windows = () if used is None else (window(used),)
    return replace(AccountView(id=AccountId(account), windows=windows), **changes)


def cooldown(seconds: float = 600.0, *, probe_at: float = RESET, probing: bool = False) -> Cooldown:
    return Cooldown(since=NOW, until=NOW + seconds, probe_at=probe_at, probing=probing)


def spent(seconds: float = 600.0, family: Family = ANY, **more: Any) -> dict[str, Any]:
    return {"spent": {family: cooldown(seconds, **more)}}


def troubled(seconds: float = 600.0, family: Family = ANY, **more: Any) -> dict[str, Any]:
    return {"trouble": {family: cooldown(seconds, **more)}}


def invalid(probe_at: float = RESET, *, probing: bool = False) -> dict[str, Any]:
    return {"invalid": cooldown(probe_at=probe_at, probing=probing)}


def binding(account: AccountId = A, **changes: Any) -> Binding:
    return replace(Binding(account=account, generation=1, used_at=NOW - 60), **changes)


def bound(account: AccountId = A, **changes: Any) -> RouteMemory:
    return RouteMemory(binding=binding(account, **changes))


def decide(
    views: Sequence[AccountView],
    memory: RouteMemory | None = None,
    settings: RoutingSettings = CACHE_FIRST,
    now: float = NOW,
    excluded: Sequence[AccountId] = (),
    **request: Any,
) -> Route | Withheld:
    asked = replace(RouteRequest(family=MODEL), **request)
    return route(views, asked, memory or RouteMemory(), settings, now, frozenset(excluded))


def found(*arguments: Any, **more: Any) -> Route:
    """The same where an account must be found."""
    decided = decide(*arguments, **more)
    assert isinstance(decided, Route), decided
    return decided


def withheld(*arguments: Any, **more: Any) -> Withheld:
    decided = decide(*arguments, **more)
    assert isinstance(decided, Withheld), decided
    return decided


def said(decided: Route) -> tuple[str, str, str]:
    """Account, move and reason."""
    return decided.account, decided.move.value, decided.reason.value


# Logins.


def jwt(**claims: Any) -> str:
    parts = ({"alg": "none"}, claims, "signature")
    texts = (part if isinstance(part, str) else json.dumps(part) for part in parts)
    return ".".join(base64.urlsafe_b64encode(x.encode()).rstrip(b"=").decode() for x in texts)


def access(number: int, expires: float = WALL + HOUR) -> str:
    """The access token with this number."""
    return jwt(exp=expires, number=number)


EXPIRED = access(1, WALL - 1)
DUE = access(1, WALL + MARGIN_SECONDS)
"""Good, but to be renewed."""


def identity(user: str = "user-1", plan: str = "pro", account: str = "account-1") -> str:
    claims = {"chatgpt_user_id": user, "chatgpt_plan_type": plan, "chatgpt_account_id": account}
    return jwt(email="somebody@example.com", **{CLAIMS: claims})


def document(access_token: str, refresh_token: str = "r0", **tokens: Any) -> dict[str, Any]:
    return {
        "auth_mode": "chatgpt",
        "OPENAI_API_KEY": None,
        "tokens": {
            "id_token": identity(),
            "access_token": access_token,
            "refresh_token": refresh_token,
            "account_id": "account-1",
            **tokens,
        },
        "last_refresh": "2026-01-01T00:00:00Z",
    }


def write(path: Path, content: Mapping[str, Any] | bytes) -> None:
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


def load(path: Path) -> Any:
    return json.loads(path.read_bytes())


def remove(path: Path) -> None:
    path.unlink()


def bearer(token: str) -> bytes:
    return f"Bearer {token}".encode()


def tokens(access_token: str, refresh_token: str = "r1", **others: str) -> tuple[int, bytes]:
    """The answer to a refresh that succeeded."""
    answer = {"access_token": access_token, "refresh_token": refresh_token, **others}
    return 200, json.dumps(answer).encode()


def token_of(outcome: HeaderList | CredentialFailure) -> bytes:
    assert not isinstance(outcome, CredentialFailure), outcome
    return dict(outcome)[b"authorization"]


def failure_of(outcome: HeaderList | CredentialFailure) -> CredentialFailure:
    assert isinstance(outcome, CredentialFailure)
    for secret in ("r0", "r1", "eyJ", "somebody", "account-1"):
        assert secret not in outcome.message
    return outcome


Answered = tuple[int, bytes] | OSError
REUSED = (401, b'{"error": {"code": "refresh_token_reused", "message": "r0 was seen"}}')


@dataclass
class AuthServer:
    """Answers in turn, the last answer for good; `before` runs while a request is under way."""

    answers: list[Answered]
    before: Callable[[], None] = lambda: None
    seconds: float = 0.0
    asked: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)

    async def __call__(self, url: str, body: Mapping[str, str]) -> tuple[int, bytes]:
        assert {**body, "refresh_token": ""} == {
            "client_id": "app_EMoamEEZ73f0CkXaXp7hrann",
            "grant_type": "refresh_token",
            "refresh_token": "",
        }
        self.asked.append(body["refresh_token"])
        self.urls.append(url)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        await trio.sleep(self.seconds)
        self.before()
        if isinstance(answer, OSError):
            raise answer
        return answer


class SignedIn(NamedTuple):
    login: ChatGptLogin
    server: AuthServer

    async def token(self, wall: float = WALL) -> bytes:
        """The authorization of the next request."""
        return token_of(await self.login.headers(wall))

    async def failure(self, wall: float = WALL) -> CredentialFailure:
        return failure_of(await self.login.headers(wall))

    async def renewed(self, used: bytes, wall: float = WALL) -> bytes:
        """The authorization after `used` was refused."""
        return token_of(await self.login.renew(used, wall))


@asynccontextmanager
async def service(server: AuthServer) -> AsyncIterator[Refresher]:
    """The task that refreshes logins, for the block."""
    refresher = Refresher(server, "https://auth.example/token")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refresher.serve, nursery)
        yield refresher
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def signed_in(path: Path, *answers: Answered, **server: Any) -> AsyncIterator[SignedIn]:
    """A login, and the auth server that it is refreshed by."""
    auth = AuthServer([*answers], **server)
    async with service(auth) as refresher:
        yield SignedIn(ChatGptLogin(path, refresher), auth)
