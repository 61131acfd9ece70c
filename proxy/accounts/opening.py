"""Opening accounts: from what their owner wrote to what can serve a turn."""

import logging
import time
from collections.abc import Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from proxy.accounts.account import Account
from proxy.accounts.credentials.api_key import ApiKey
from proxy.accounts.credentials.auth_file import read
from proxy.accounts.credentials.auth_json import NoLogin
from proxy.accounts.credentials.chatgpt import ChatGptLogin
from proxy.accounts.credentials.refresh import CredentialFailure, Refresher
from proxy.accounts.credentials.secret_source import Loaded, load_reference
from proxy.accounts.health import AccountHealth, PersistedHealth
from proxy.accounts.pool import AccountPool
from proxy.accounts.registry import AccountRegistry
from proxy.accounts.spec import AccountSpec
from proxy.accounts.view import AccountId
from proxy.headers import HeaderList

logger = logging.getLogger(__name__)


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

    async def headers(self, wall: float) -> HeaderList | CredentialFailure:
        return self.key.headers()

    async def renew(self, used: bytes, wall: float) -> HeaderList | CredentialFailure:
        return CredentialFailure(final=True, message="the provider refused its key")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCredential:
    """Stands for one that cannot be read, so that the others serve meanwhile."""

    failure: CredentialFailure
    fingerprint: str = ""
    version: str = ""

    async def headers(self, wall: float) -> HeaderList | CredentialFailure:
        return self.failure

    async def renew(self, used: bytes, wall: float) -> HeaderList | CredentialFailure:
        return self.failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Opener:
    """What opening an account needs. `environment` is where `env:NAME` is looked up; `known` is
    what earlier processes learnt."""

    refresher: Refresher
    environment: Mapping[str, str] = field(repr=False)
    known: MutableMapping[AccountId, PersistedHealth]
    wall: Callable[[], float] = time.time

    def open(self, account: AccountId, spec: AccountSpec) -> Account:
        """One whose login is missing waits for its owner to sign in. Raises ValueError for a key
        that cannot be read."""
        state = AccountHealth(self.known.get(account))
        if spec.key is not None:
            loaded = load_reference(spec.key, self.environment)
            if loaded.note is not None:
                logger.warning("account %s: %s", account, loaded.note)
            key = _api_key(loaded, spec)
            return Account(account, spec, KeyCredential(key=key), state)
        login = ChatGptLogin(_login_path(spec), self.refresher)
        made = Account(account, spec, login, state)
        if (failure := login.failure) is not None:
            self._note(made, failure)
        return made

    def open_anyway(self, account: AccountId, spec: AccountSpec) -> Account:
        """The same; one that cannot be read is there, and serves nobody."""
        try:
            return self.open(account, spec)
        except ValueError as error:
            failure = CredentialFailure(final=True, message=f"not readable: {error}", local=True)
        state = AccountHealth(self.known.get(account))
        made = Account(account, spec, NoCredential(failure=failure), state)
        self._note(made, failure)
        return made

    def _note(self, made: Account, failure: CredentialFailure) -> None:
        logger.warning("account %s cannot serve: %s", made.id, failure.message)
        made.failed(failure, self.wall())


def inspect(spec: AccountSpec, environment: Mapping[str, str]) -> str | None:
    """What its owner ought to know before it is opened. Raises ValueError as `Opener.open`."""
    if spec.key is not None:
        loaded = load_reference(spec.key, environment)
        _api_key(loaded, spec)
        return loaded.note
    found = read(_login_path(spec)).login
    return f"{found.value}: sign in" if isinstance(found, NoLogin) else None


def _api_key(loaded: Loaded, spec: AccountSpec) -> ApiKey:
    return ApiKey(secret=loaded.secret, organization=spec.organization, project=spec.project)


def _login_path(spec: AccountSpec) -> Path:
    return Path(spec.auth_json or "").expanduser()


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedAccounts:
    """The accounts of one home. Those `configured` in config.toml are not added or removed here."""

    pool: AccountPool
    book: AccountRegistry
    opener: Opener
    configured: Collection[AccountId]
