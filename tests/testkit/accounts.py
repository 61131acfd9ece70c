"""Accounts made of fakes: whose requests are whose shows in their authorization."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.accounts.account import Account
from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.spec import AccountSpec
from proxy.accounts.usage import QuotaUsage
from proxy.accounts.view import AccountId, Window
from proxy.headers import HeaderList
from tests.testkit.runtime import WALL, Bench
from tests.testkit.upstream import Sent

HOUR = 3600.0


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
        return bearer(self.name)

    async def renew(self, used: bytes, wall: float) -> HeaderList | CredentialFailure:
        self.renewals += 1
        if self.renewed is None:
            return CredentialFailure(final=True, message="refused")
        return bearer(self.renewed)


def bearer(name: str) -> HeaderList:
    return [(b"authorization", f"Bearer sk-secret-{name}".encode())]


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
    known.state.learn(QuotaUsage(windows=(window,)), now)


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
