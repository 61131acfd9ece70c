"""Opening accounts: from what their owner wrote to what can serve a turn."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proxy.accounts.account import AccountId
from proxy.accounts.claim import Account
from proxy.accounts.credentials import ApiKey, ChatGptLogin, Headers
from proxy.accounts.reference import load_reference
from proxy.accounts.refresher import CredentialFailure, Refresher
from proxy.accounts.spec import AccountSpec
from proxy.accounts.state import AccountState, Lasting


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCredential:
    """An API key, which nothing can renew."""

    key: ApiKey

    @property
    def fingerprint(self) -> str:
        return self.key.fingerprint

    @property
    def version(self) -> str:
        return self.key.fingerprint

    async def headers(self, wall: float) -> Headers | CredentialFailure:
        return self.key.headers()

    async def renew(self, used: bytes, wall: float) -> Headers | CredentialFailure:
        return CredentialFailure(final=True, message="the provider refused its key")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCredential:
    """Stands for one that cannot be read, so that the others serve meanwhile."""

    problem: str
    fingerprint: str = ""
    version: str = ""

    async def headers(self, wall: float) -> Headers | CredentialFailure:
        return CredentialFailure(final=True, message=self.problem)

    async def renew(self, used: bytes, wall: float) -> Headers | CredentialFailure:
        return CredentialFailure(final=True, message=self.problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opener:
    """What opening an account needs. `environment` is where `env:NAME` is looked up."""

    refresher: Refresher
    environment: Mapping[str, str] = field(repr=False)
    known: Mapping[AccountId, Lasting]

    def open(self, account: AccountId, spec: AccountSpec) -> Account:
        """Raises ValueError for a credential that cannot be read."""
        credential: KeyCredential | ChatGptLogin
        if spec.key is not None:
            secret = load_reference(spec.key, self.environment).secret
            key = ApiKey(secret=secret, organization=spec.organization, project=spec.project)
            credential = KeyCredential(key=key)
        else:
            path = Path(spec.auth_json or "").expanduser()
            credential = ChatGptLogin(path, self.refresher)
        return Account(account, spec, credential, self._state(account))

    def open_anyway(self, account: AccountId, spec: AccountSpec) -> Account:
        """The same; one that cannot be read is there, and serves nobody."""
        try:
            return self.open(account, spec)
        except ValueError as error:
            return Account(account, spec, NoCredential(problem=str(error)), self._state(account))

    def _state(self, account: AccountId) -> AccountState:
        return AccountState(self.known.get(account))
