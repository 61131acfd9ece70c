"""Refreshes of tokens, each in a task of the service, so that a cancelled turn cancels no refresh.

Theory of operation
-------------------
A login puts a `Flight` into a bounded channel; `serve` starts it in the service nursery, and every
caller that needs the token waits for its end. A refresh token works once, so nothing may interrupt
what lies between the request and the file: that part runs in the flight's `shelter`, which only its
deadline ends. When the service is cancelled, the deadline becomes `LAST_SECONDS`.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import trio

from proxy.accounts.credentials.auth_json import Login, Renewal, read_renewal, refusal_code
from proxy.accounts.spec import REFRESH_URL

logger = logging.getLogger(__name__)

CLIENT_ID: Final = "app_EMoamEEZ73f0CkXaXp7hrann"
"""The public client id of Codex: a refresh token works only for the client that it was issued to
(RFC 6749 section 6)."""
REFRESH_SECONDS: Final = 30.0
"""The deadline of a whole refresh: waiting for the lock and for the auth server."""
LAST_SECONDS: Final = 2.0
"""How long a refresh that is under way may still take when turnlane ends."""
MOST_FLIGHTS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialFailure:
    """Why a credential cannot be used now. `final`: not until its owner signs in again.

    `message` never holds what a server sent. `local`: the cause is on this machine.
    """

    final: bool
    message: str
    retry_seconds: float | None = None
    local: bool = False


class Post(Protocol):
    """POST JSON to a URL; return status and body. Raises OSError when no answer came."""

    async def __call__(self, url: str, body: Mapping[str, str]) -> tuple[int, bytes]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RefresherStatistics:
    started: int
    under_way: int


RefreshOutcome = Login | CredentialFailure
Work = Callable[[trio.CancelScope], Awaitable[RefreshOutcome]]


@dataclass(eq=False, slots=True)
class Flight:
    """One refresh. `outcome` is valid once `ended` is set."""

    work: Work = field(repr=False)
    shelter: trio.CancelScope = field(repr=False)
    ended: trio.Event = field(default_factory=trio.Event)
    outcome: RefreshOutcome = field(
        repr=False,
        default=CredentialFailure(
            final=False, message="the refresh of its login did not end in time"
        ),
    )


class Refresher:
    """The task that refreshes the logins of one pool, and the auth server that it asks."""

    def __init__(self, post: Post, refresh_url: str = REFRESH_URL) -> None:
        self._post = post
        self._refresh_url = refresh_url
        self._asked, self._asks = trio.open_memory_channel[Flight](MOST_FLIGHTS)
        self._under_way: set[Flight] = set()
        self._flights = 0

    async def serve(self, service: trio.Nursery) -> None:
        """The owner task: start flights in the service nursery until cancelled."""
        try:
            async for flight in self._asks:
                self._under_way.add(flight)
                self._flights += 1
                service.start_soon(self._fly, flight)
        finally:
            last = trio.current_time() + LAST_SECONDS
            for flight in self._under_way:
                flight.shelter.deadline = min(flight.shelter.deadline, last)
            while self._asks.statistics().current_buffer_used:
                self._asks.receive_nowait().ended.set()
            self._asks.close()

    def start(self, work: Work) -> Flight:
        """Start `work` in the service. It gets a scope in which to do what must not be cut off."""
        deadline = trio.current_time() + REFRESH_SECONDS
        flight = Flight(work, trio.CancelScope(shield=True, deadline=deadline))
        try:
            self._asked.send_nowait(flight)
        except (trio.WouldBlock, trio.BrokenResourceError):
            flight.outcome = CredentialFailure(
                final=False, message="no refresh can be started now", retry_seconds=LAST_SECONDS
            )
            flight.ended.set()
        return flight

    def statistics(self) -> RefresherStatistics:
        return RefresherStatistics(started=self._flights, under_way=len(self._under_way))

    async def ask(self, refresh_token: str) -> Renewal | CredentialFailure:
        """Exchange a refresh token, which works once, for new tokens."""
        body = {
            "client_id": CLIENT_ID,
            "grant_type": "refresh_token",
            "refresh_token": refresh_token,
        }
        try:
            status, answer = await self._post(self._refresh_url, body)
        except OSError:
            return _not_now("the auth server cannot be reached")
        return judge(status, answer)

    async def _fly(self, flight: Flight) -> None:
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
            flight.outcome = await flight.work(flight.shelter)
        except Exception:  # A bug in one refresh must not end the others, or the service.
            logger.exception("a refresh failed")
        finally:
            self._under_way.discard(flight)
            flight.ended.set()


def judge(status: int, answer: bytes) -> Renewal | CredentialFailure:
    """Interpret a token endpoint's answer: only a refused refresh token is final."""
    if 200 <= status < 300:
        return read_renewal(answer) or _not_now(f"the auth server answered {status} with no token")
    code = refusal_code(answer)
    if status != 401 and (status != 400 or code is None):
        return _not_now(f"the auth server answered with status {status}")
    named = f"{status} ({code})" if code is not None else f"{status}"
    why = f"its login is no longer valid: the refresh failed with status {named}; sign in again"
    return CredentialFailure(final=True, message=why)


def _not_now(why: str) -> CredentialFailure:
    return CredentialFailure(final=False, message=f"its login could not be refreshed: {why}")
