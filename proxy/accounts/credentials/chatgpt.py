"""ChatGPT logins as credentials: the headers they add to a request, and how they stay valid.

Theory of operation
-------------------
A ChatGPT login is its auth.json. The file is read again whenever its stamp has changed, so that
what Codex or another turnlane wrote is used at once. A token that is about to expire, or that an
upstream has refused, is renewed by one flight (`proxy.accounts.credentials.refresh`) that all
callers wait for. The flight takes the lock and looks into the file first, and asks the auth server
only if no other process has. A refusal by the auth server counts for the refresh token that it
refused; a new one in the file is tried.
"""

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import trio

from proxy.accounts.credentials.api_key import bearer
from proxy.accounts.credentials.auth_file import (
    Copy,
    locked_beside,
    read,
    read_settled,
    stamp,
    tokens_differ,
    write_back,
)
from proxy.accounts.credentials.auth_json import (
    Login,
    NoLogin,
    Renewal,
    digest,
    read_login,
    rewritten,
)
from proxy.accounts.credentials.refresh import CredentialFailure, Flight, Refresher, RefreshOutcome
from proxy.headers import HeaderList

logger = logging.getLogger(__name__)

MARGIN_SECONDS: Final = 60.0
"""A token is renewed this long before it expires, so that none expires on its way. Codex renews 5
minutes before."""
SPACING_SECONDS: Final = 30.0
"""A token this young is not renewed, or a wrong clock would cause a refresh for every turn."""
FIRST_PAUSE_SECONDS: Final = 5.0
LONGEST_PAUSE_SECONDS: Final = 300.0
GRACE_SECONDS: Final = 2.0
"""How long to wait, after the auth server has refused a refresh token, for the process that used it
to write its successor."""
GRACE_STEP_SECONDS: Final = 0.1


class ChatGptLogin:
    """A login in an auth.json at `path`: Codex's own, or a copy of turnlane's."""

    def __init__(self, path: Path, refresher: Refresher) -> None:
        self._path = path
        self._refresher = refresher
        self._copy = read(path)
        self._login = self._copy.login
        self._known = self._login if isinstance(self._login, Login) else None
        """The last login that was read, in use while the file is being written."""
        self._fingerprint = "" if self._known is None else self._known.identity
        self._unsaved = Renewal()
        self._flight: Flight | None = None
        self._young: tuple[str, float] | None = None
        self._refused: tuple[str, CredentialFailure] | None = None
        self._failures = 0
        self._paused: tuple[float, CredentialFailure] | None = None

    def __repr__(self) -> str:
        return f"ChatGptLogin({str(self._path)!r})"

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the login that the file holds or held last; empty before any."""
        self._current()
        return self._fingerprint

    @property
    def version(self) -> str:
        login = self._current()
        return digest(login.access_token) if isinstance(login, Login) else ""

    @property
    def plan(self) -> str | None:
        login = self._current()
        return login.plan if isinstance(login, Login) else None

    @property
    def failure(self) -> CredentialFailure | None:
        """Why there is no login; None if there is one."""
        login = self._current()
        return _unusable(login) if isinstance(login, NoLogin) else None

    async def headers(self, wall: float) -> HeaderList | CredentialFailure:
        """Return the headers for a request, renewing a token that is about to expire."""
        login = self._current()
        if isinstance(login, NoLogin):
            return self._without_a_file(login, wall)
        if not login.expires_by(wall + MARGIN_SECONDS) or self._seconds_young(login) > 0:
            return _headers(login)
        outcome = await self._renewed(login, wall)
        if isinstance(outcome, Login):
            return _headers(outcome)
        login = self._current()
        return outcome if isinstance(login, NoLogin) or login.expires_by(wall) else _headers(login)

    async def renew(self, used: str | bytes, wall: float) -> HeaderList | CredentialFailure:
        """Return the headers for a request after an upstream refused the authorization `used`."""
        login = self._current()
        if isinstance(login, NoLogin):
            return _unusable(login)
        if login.access_token != _token_in(used):
            if not login.expires_by(wall):
                return _headers(login)
        elif (seconds := self._seconds_young(login)) > 0 and not login.expires_by(wall):
            why = "the upstream refuses the token that was refreshed just now"
            return CredentialFailure(final=False, message=why, retry_seconds=seconds)
        outcome = await self._renewed(login, wall)
        return _headers(outcome) if isinstance(outcome, Login) else outcome

    def _current(self) -> Login | NoLogin:
        if (found := stamp(self._path)) is None or found != self._copy.stamp:
            self._take(read(self._path))
        return self._login

    def _take(self, copy: Copy) -> None:
        """Take in a file. New tokens, from any writer, end what was known about the old ones."""
        if copy.data != self._copy.data or isinstance(copy.login, NoLogin):
            self._login = copy.login
            self._unsaved = Renewal()
            self._failures, self._paused = 0, None
        self._copy = copy
        if isinstance(self._login, Login):
            self._known = self._login
            self._fingerprint = self._login.identity
        elif self._login is not NoLogin.BROKEN:
            self._known = None

    def _without_a_file(self, problem: NoLogin, wall: float) -> HeaderList | CredentialFailure:
        known = self._known
        if problem is NoLogin.BROKEN and known is not None and not known.expires_by(wall):
            return _headers(known)
        return _unusable(problem)

    def _seconds_young(self, login: Login) -> float:
        """Return for how many seconds a token is still too young to be renewed again."""
        if self._young is None or self._young[0] != login.access_token:
            return 0.0
        return self._young[1] + SPACING_SECONDS - trio.current_time()

    async def _renewed(self, login: Login, wall: float) -> RefreshOutcome:
        """Return a login with another access token, from the refresh under way or a new one."""
        while True:
            flight = self._flight
            if flight is None or flight.ended.is_set():
                if (failure := self._held_back(login)) is not None:
                    return failure
                work = partial(self._refresh, login.access_token, wall)
                flight = self._flight = self._refresher.start(work)
            await flight.ended.wait()
            outcome = flight.outcome
            if not isinstance(outcome, Login) or outcome.access_token != login.access_token:
                return outcome

    def _held_back(self, login: Login) -> CredentialFailure | None:
        if login.refresh_token is None:
            message = "its auth.json has no refresh token"
            return CredentialFailure(final=True, message=message, local=True)
        if self._refused is not None and self._refused[0] == login.refresh_token:
            return self._refused[1]
        if self._paused is not None and (left := self._paused[0] - trio.current_time()) > 0:
            return replace(self._paused[1], retry_seconds=left)
        return None

    async def _refresh(self, stale: str, wall: float, shelter: trio.CancelScope) -> RefreshOutcome:
        """Refresh the tokens. Once the auth server is asked, only the deadline ends this."""
        outcome: RefreshOutcome | None = None
        try:
            with trio.move_on_at(shelter.deadline):
                async with locked_beside(self._path):
                    with shelter:
                        outcome = await self._refresh_locked(stale, wall)
        except OSError as error:
            outcome = self._pause(f"its auth.json cannot be locked: {error.strerror}")
        return outcome or self._pause("the refresh of its login took too long")

    async def _refresh_locked(self, stale: str, wall: float) -> RefreshOutcome:
        copy = await read_settled(self._path)
        self._take(copy)
        login = self._login
        if isinstance(login, NoLogin):
            return _unusable(login)
        if login.access_token != stale and not login.expires_by(wall + MARGIN_SECONDS):
            return login
        if (failure := self._held_back(login)) is not None:
            return failure
        refresh_token = login.refresh_token or ""
        answer = await self._refresher.ask(refresh_token)
        if isinstance(answer, Renewal):
            return await self._keep(copy, answer, stale, wall)
        if not answer.final:
            return self._pause(answer.message)
        if await self._is_overtaken(copy):
            return await self._refresh_locked(stale, wall)
        logger.warning("an account cannot be used: %s", answer.message)
        self._refused = (refresh_token, answer)
        return answer

    async def _is_overtaken(self, before: Copy) -> bool:
        """Whether another process has used the refresh token and writes its successor in time."""
        deadline = trio.current_time() + GRACE_SECONDS
        while not (found := tokens_differ(read(self._path), before)):
            if trio.current_time() >= deadline:
                break
            await trio.sleep(GRACE_STEP_SECONDS)
        return found

    async def _keep(self, copy: Copy, renewal: Renewal, stale: str, wall: float) -> RefreshOutcome:
        """Write new tokens, unless another process has written a login meanwhile: that one wins."""
        renewal = renewal.over(self._unsaved)
        with trio.CancelScope(shield=True):  # The new tokens are nowhere else yet.
            await read_settled(self._path)
        try:
            self._take(write_back(self._path, copy, renewal, wall))
        except OSError as error:
            logger.warning("a refreshed login cannot be kept: %s", error.strerror)
            self._login = read_login(rewritten(copy.data, renewal, wall))
            self._unsaved = renewal
        login = self._login
        if isinstance(login, NoLogin):
            return _unusable(login)
        if login.access_token == stale:
            return self._pause("the refresh of its login returned the same token")
        if login.access_token != renewal.access_token:
            expired = login.expires_by(wall)
            return (
                self._pause("another process has replaced its login with an expired one")
                if expired
                else login
            )
        self._young = (login.access_token, trio.current_time())
        return login

    def _pause(self, message: str) -> CredentialFailure:
        seconds = min(FIRST_PAUSE_SECONDS * 2**self._failures, LONGEST_PAUSE_SECONDS)
        self._failures = min(self._failures + 1, 16)
        failure = CredentialFailure(final=False, message=message, retry_seconds=seconds)
        logger.warning("an account is held back for %g s: %s", seconds, message)
        self._paused = (trio.current_time() + seconds, failure)
        return failure


def _unusable(problem: NoLogin) -> CredentialFailure:
    if problem is NoLogin.BROKEN:
        message = problem.value
        return CredentialFailure(final=False, message=message, retry_seconds=1.0, local=True)
    return CredentialFailure(final=True, message=f"{problem.value}: sign in again", local=True)


def _headers(login: Login) -> HeaderList:
    account = (b"chatgpt-account-id", login.account_id.encode())
    return [bearer(login.access_token), account]


def _token_in(authorization: str | bytes) -> str:
    """Return the token of an authorization, with or without `Bearer` before it."""
    whole = authorization.decode("latin-1") if isinstance(authorization, bytes) else authorization
    return whole.strip().rpartition(" ")[2]
