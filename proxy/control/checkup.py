"""The checkup of an account: ask its provider, at no cost in tokens, and take in what it says.

Two pages are asked: the list of models, which every credential may read, and for a ChatGPT login
the usage page of its backend. What the provider itself says of usage ends a hint of days early.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

from proxy import __version__
from proxy.accounts.account import Account
from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.pool import AccountPool
from proxy.accounts.usage import usage_in_report
from proxy.accounts.verdict import Kind, Verdict
from proxy.accounts.view import ANY, Standing
from proxy.control.commands import CHECKUP_SECONDS, Health
from proxy.errors import UpstreamCut
from proxy.headers import HeaderList, find
from proxy.upstream.interface import Failure, Upstream, UpstreamReply, UpstreamRequest
from proxy.upstream.url import upstream_url

logger = logging.getLogger(__name__)

PAGE_SECONDS: Final = 15.0
WATCH_SECONDS: Final = 900.0
"""Between two looks at an account that is spent, or whose credential was refused."""
PAGE_BYTES: Final = 2**20
_MODELS: Final = "/models"
_CODEX_BACKEND: Final = "/backend-api/codex"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """`detail` says what was seen, in words of our own. `usage`: the provider has reported some."""

    credential: Health
    detail: str
    usage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A page, or in `problem` why there is none; `refused`: the credential was refused."""

    status: int = 0
    body: bytes = b""
    problem: str | None = None
    refused: bool = False

    @property
    def good(self) -> bool:
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkups:
    """Checks of accounts through the turns' own upstream; `upstream_url` is where turns go unless
    their account says otherwise."""

    accounts: AccountPool
    upstream: Upstream
    upstream_url: str | None
    wall: Callable[[], float]

    async def check(self, account: Account) -> Checkup:
        """Ask whether the credential is good, and what the provider says of its usage."""
        with trio.move_on_after(CHECKUP_SECONDS):
            models = await self._read(account, account.base_url, _MODELS, _query(account))
            usage = None if models.refused else await self._learn_usage(account)
            return _judged(models, usage)
        return Checkup(credential=Health.UNKNOWN, detail=f"no answer within {CHECKUP_SECONDS:g} s")

    async def watch(self) -> None:
        """Look accounts up that are out of use, now and then, until cancelled. While others serve,
        no turn would go there and find out that it is good again."""
        while True:
            await trio.sleep(WATCH_SECONDS)
            for account in self.accounts.all():
                try:
                    match account.view().standing(ANY, self.wall()):
                        case Standing.SPENT:
                            await self._learn_usage(account)
                        case Standing.INVALID:
                            await self.check(account)
                except Exception:  # a bug in this ends no turn
                    logger.exception("an account cannot be looked up")

    async def _learn_usage(self, account: Account) -> _Seen | None:
        """Take in the usage page; None if there is no such page."""
        base = _usage_base(account, self.upstream_url)
        if base is None:
            return None
        seen = await self._read(account, base, "/wham/usage")
        usage = usage_in_report(seen.body, self.wall()) if seen.good else None
        if usage is None or not usage.windows:
            return seen if usage is None else _Seen(problem="the usage page reports no window")
        account.health.refresh(usage, self.wall())
        self.accounts.store.changed(account.id)
        return seen

    async def _read(
        self, account: Account, base: str | None, path: str, query: bytes = b""
    ) -> _Seen:
        """Read a page with the account's credential, renewed once if it is refused, and note what
        that shows of the account."""
        health, began = account.health, self.wall()
        credential = await account.credential.headers(began)
        seen = await self._fetch(base, path, query, credential)
        if seen.status == 401 and not isinstance(credential, CredentialFailure):
            used = (find(credential, b"authorization") or "").encode()
            credential = await account.credential.renew(used, self.wall())
            seen = await self._fetch(base, path, query, credential)
        now = self.wall()
        health.adopt(account.credential.fingerprint)
        if isinstance(credential, CredentialFailure):
            account.failed(credential, now)
        elif seen.refused and path == _MODELS:
            account.note(Verdict(kind=Kind.UNAUTHORIZED), ANY, began, now)
        elif seen.good:
            account.renewed()
            health.reached(began)
        self.accounts.store.changed(account.id)
        return seen

    async def _fetch(
        self,
        base: str | None,
        path: str,
        query: bytes,
        credential: HeaderList | CredentialFailure,
    ) -> _Seen:
        if isinstance(credential, CredentialFailure):
            return _Seen(problem=credential.message, refused=credential.final)
        request = UpstreamRequest(
            base_url=base,
            method="GET",
            path=path,
            query=query,
            headers=[
                *credential,
                (b"accept", b"application/json"),
                (b"accept-encoding", b"identity"),
                (b"user-agent", f"turnlane/{__version__}".encode()),
            ],
            body=None,
            streamed=False,
        )
        try:
            with trio.move_on_after(PAGE_SECONDS):
                async with self.upstream.open(request) as reply:
                    if isinstance(reply, Failure):
                        return _Seen(problem=f"no answer ({reply.code})")
                    return await _page(reply)
        except UpstreamCut:
            return _Seen(problem="the answer was cut off")
        return _Seen(problem=f"no answer within {PAGE_SECONDS:g} s")


def _usage_base(account: Account, configured: str | None) -> str | None:
    """Return the base URL of the usage page of a ChatGPT login's backend; None for anything
    else."""
    if account.spec.kind != "chatgpt":
        return None
    base = upstream_url(account.base_url, configured, chatgpt=True).rstrip("/")
    return base.removesuffix("/codex") if base.endswith(_CODEX_BACKEND) else None


def _query(account: Account) -> bytes:
    """The ChatGPT backend lists the models that are for some version of a client."""
    return b"client_version=" + __version__.encode() if account.spec.kind == "chatgpt" else b""


def _judged(models: _Seen, usage: _Seen | None) -> Checkup:
    learnt = usage is not None and usage.good
    if models.good or learnt:
        return Checkup(credential=Health.GOOD, detail=_said(models, usage), usage=learnt)
    health = Health.REFUSED if models.refused else Health.UNKNOWN
    return Checkup(credential=health, detail=_said(models, usage))


def _said(models: _Seen, usage: _Seen | None) -> str:
    pages = (("models", models), ("usage", usage))
    return "; ".join(
        f"{name}: {seen.problem or seen.status}" for name, seen in pages if seen is not None
    )


async def _page(reply: UpstreamReply) -> _Seen:
    if not 200 <= reply.status < 300:
        return _Seen(status=reply.status, refused=reply.status == 401)
    body = b""
    while len(body) < PAGE_BYTES and (chunk := await reply.read()):
        body += chunk
    return _Seen(status=reply.status, body=body)
