"""An account: one credential and what is known of it."""

from typing import Final, Protocol

from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.health import AccountHealth
from proxy.accounts.spec import AccountSpec
from proxy.accounts.tally import Tally
from proxy.accounts.verdict import Kind, Verdict
from proxy.accounts.view import ANY, AccountId, AccountView, Family
from proxy.headers import HeaderList

REFUSED: Final = "credential refused by the provider"


class Credential(Protocol):
    """What authorizes a request. `fingerprint` stays while a token is only refreshed; `version`
    changes with each token. Neither tells a secret."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def version(self) -> str: ...

    async def headers(self, wall: float) -> HeaderList | CredentialFailure: ...

    async def renew(self, used: bytes, wall: float) -> HeaderList | CredentialFailure: ...


class Account:
    def __init__(
        self,
        account: AccountId,
        spec: AccountSpec,
        credential: Credential,
        state: AccountHealth | None = None,
    ) -> None:
        self.id = account
        self.spec = spec
        self.credential = credential
        self.state = state if state is not None else AccountHealth()
        self.tally = Tally()
        self.in_flight = 0
        self.base_url = spec.url
        self._refused: str | None = None
        """The version of the credential that was refused last."""
        self._problem: str | None = None
        """What its credential failed by last."""
        self.state.adopt(credential.fingerprint)

    def note(self, verdict: Verdict, family: Family, began: float, now: float) -> None:
        """What an attempt that began then has shown."""
        if verdict.kind is Kind.UNAUTHORIZED:
            self._refused = self.credential.version
            if not self.state.invalid:
                self._problem = REFUSED
        elif verdict.kind is Kind.SERVED:
            self._problem = None
        self.state.note(verdict, family, began, now)

    def failed(self, failure: CredentialFailure, now: float) -> None:
        """Its credential cannot be had, for good or for a while."""
        if failure.final:
            self.note(Verdict(kind=Kind.UNAUTHORIZED), ANY, now, now)
        else:
            self.state.delay(failure.retry_seconds or 0.0, now)
        self._problem = failure.message

    def reached(self, began: float) -> None:
        """What was asked then has been answered."""
        self.state.reached(began)
        if not self.state.invalid:
            self._problem = None

    def renewed(self) -> None:
        """Its credential is another than the one refused, or was found good."""
        self.state.renewed()
        self._problem = None

    def problem(self, now: float) -> str | None:
        """What is wrong with its credential; None while it serves."""
        view = self.view()
        held = view.invalid is not None or view.troubled(ANY, now)
        return self._problem if held else None

    def view(self) -> AccountView:
        """A refusal holds for the credential that was refused: its owner may sign in again, while
        no turn comes here that would notice."""
        if self.state.invalid and self._refused not in (None, self.credential.version):
            self.renewed()
        return self.state.view(self.id, self.spec.models)
