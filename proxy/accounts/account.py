"""Account: one credential and what is known about it."""

from typing import Final, Protocol

from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.health import AccountHealth
from proxy.accounts.spec import AccountSpec
from proxy.accounts.statistics import AccountStatistics, Tally
from proxy.accounts.verdict import Kind, Verdict
from proxy.accounts.view import ANY, AccountId, AccountView, Family, Standing
from proxy.headers import HeaderList

REFUSED: Final = "credential refused by the provider"


class Credential(Protocol):
    """What authorizes a request. A refreshed token changes the `version` and keeps the
    `fingerprint`; another login or key changes both. Neither reveals a secret."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def version(self) -> str: ...

    async def headers(self, wall: float) -> HeaderList | CredentialFailure: ...

    async def renew(self, used: bytes, wall: float) -> HeaderList | CredentialFailure: ...


class Account:
    """A credential with its health, its statistics and the attempts that are under way on it."""

    def __init__(
        self,
        account: AccountId,
        spec: AccountSpec,
        credential: Credential,
        health: AccountHealth | None = None,
    ) -> None:
        self.id = account
        self.spec = spec
        self.credential = credential
        self.health = health if health is not None else AccountHealth()
        self.tally = Tally()
        self.in_flight = 0
        self.base_url = spec.url
        self._refused: str | None = None
        """The version of the credential that the provider refused last."""
        self._problem: str | None = None
        """What was wrong with the credential when it failed last."""
        self.health.adopt(credential.fingerprint)

    def __repr__(self) -> str:
        return f"<Account {self.id} {self.spec.kind}, {self.in_flight} attempts>"

    def note(self, verdict: Verdict, family: Family, began: float, now: float) -> None:
        """Note what an attempt that began at `began` has shown."""
        if verdict.kind is Kind.UNAUTHORIZED:
            self._refused = self.credential.version
            if not self.health.invalid:
                self._problem = REFUSED
        elif verdict.kind is Kind.SERVED:
            self._problem = None
        self.health.note(verdict, family, began, now)

    def failed(self, failure: CredentialFailure, now: float) -> None:
        """Note that the credential cannot be had, for good or for a while."""
        if failure.final:
            self.note(Verdict(kind=Kind.UNAUTHORIZED), ANY, now, now)
        else:
            self.health.delay(failure.retry_seconds or 0.0, now)
        self._problem = failure.message

    def reached(self, began: float) -> None:
        """Note an answer to a request from `began` that costs no quota."""
        self.health.reached(began)
        if not self.health.invalid:
            self._problem = None

    def renewed(self) -> None:
        """Note that the credential is not the refused one any more, or was found to be good."""
        self.health.renewed()
        self._problem = None

    def problem(self, now: float) -> str | None:
        """Return what is wrong with the credential; None while it serves."""
        view = self.view()
        held = view.invalid is not None or view.troubled(ANY, now)
        return self._problem if held else None

    def view(self) -> AccountView:
        """Return what routing may know about the account.

        A refusal counts only for the version of the credential that was refused: its owner may
        have signed in again, and no turn comes to an invalid account that would notice.
        """
        if self.health.invalid and self._refused not in (None, self.credential.version):
            self.renewed()
        return self.health.view(self.id, self.spec.models)

    def statistics(
        self, bindings: int, same_as: tuple[AccountId, ...], now: float
    ) -> AccountStatistics:
        """Return what operators see of the account, to which so many threads are bound."""
        view = self.view()
        cooling = {*view.spent, *view.trouble} - {ANY}
        return AccountStatistics(
            id=self.id,
            kind=self.spec.kind,
            plan=self.health.plan,
            standing=view.standing(ANY, now),
            score=view.score(now) if view.seen() else None,
            windows=tuple(window for window in view.windows if window.live(now)),
            resets_at=view.spent_until(ANY, now),
            cooling_models=tuple(
                sorted(x for x in cooling if view.standing(x, now) is not Standing.READY)
            ),
            in_flight=self.in_flight,
            bindings=bindings,
            last_hour=self.tally.last_hour(now),
            url=self.spec.url,
            models=self.spec.models,
            problem=self.problem(now),
            same_as=same_as,
        )
