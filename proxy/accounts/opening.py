"""Opening accounts: a pool that can serve turns is made of what their owner wrote down and what
earlier processes learnt."""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from proxy.accounts.account import Account
from proxy.accounts.bindings import Bindings
from proxy.accounts.credentials.api_key import ApiKey, NoCredential
from proxy.accounts.credentials.auth_file import read
from proxy.accounts.credentials.auth_json import NoLogin
from proxy.accounts.credentials.chatgpt import ChatGptLogin
from proxy.accounts.credentials.refresh import CredentialFailure, Refresher
from proxy.accounts.credentials.secret_source import Loaded, load_reference
from proxy.accounts.health import AccountHealth, PersistedHealth
from proxy.accounts.persistence import remember
from proxy.accounts.pool import AccountPool
from proxy.accounts.registry import AccountRegistry
from proxy.accounts.route import RoutingSettings
from proxy.accounts.spec import AccountSpec
from proxy.accounts.view import AccountId
from proxy.database import Database
from proxy.errors import ConfigError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opener:
    """Opens accounts. `env:NAME` is looked up in `environment`; `known` is what earlier processes
    learnt."""

    refresher: Refresher
    environment: Mapping[str, str] = field(repr=False)
    known: MutableMapping[AccountId, PersistedHealth]
    wall: Callable[[], float] = time.time

    def open(self, account: AccountId, spec: AccountSpec) -> Account:
        """Open an account. One whose login is missing waits for its owner to sign in. Raises
        ValueError for a key that cannot be read."""
        health = AccountHealth(self.known.get(account))
        if spec.key is not None:
            loaded = load_reference(spec.key, self.environment)
            if loaded.note is not None:
                logger.warning("account %s: %s", account, loaded.note)
            key = _api_key(loaded, spec)
            return Account(account, spec, key, health)
        login = ChatGptLogin(_login_path(spec), self.refresher)
        made = Account(account, spec, login, health)
        if (failure := login.failure) is not None:
            self._note(made, failure)
        return made

    def open_anyway(self, account: AccountId, spec: AccountSpec) -> Account:
        """Open an account. One whose key cannot be read is listed but serves no turn."""
        try:
            return self.open(account, spec)
        except ValueError as error:
            failure = CredentialFailure(final=True, message=f"not readable: {error}", local=True)
        health = AccountHealth(self.known.get(account))
        made = Account(account, spec, NoCredential(failure=failure), health)
        self._note(made, failure)
        return made

    def _note(self, made: Account, failure: CredentialFailure) -> None:
        logger.warning("account %s cannot serve: %s", made.id, failure.message)
        made.failed(failure, self.wall())


class AccountSettings(Protocol):
    """What the configuration says about accounts."""

    @property
    def home(self) -> Path: ...
    @property
    def accounts(self) -> Mapping[AccountId, AccountSpec]: ...
    @property
    def routing(self) -> RoutingSettings: ...
    @property
    def secrets(self) -> Mapping[str, str]:
        """The environment variables that accounts refer to."""
        ...


def inspect_accounts(config: AccountSettings) -> list[str]:
    """Return warnings about configured accounts. Raises ConfigError for one that cannot serve."""
    warnings = []
    for account, spec in config.accounts.items():
        try:
            warning = _inspect(spec, config.secrets)
        except ValueError as error:
            raise ConfigError(f"accounts.{account}.key", str(error)) from error
        if warning is not None:
            warnings.append(f"accounts.{account}: {warning}")
    return warnings


def _inspect(spec: AccountSpec, environment: Mapping[str, str]) -> str | None:
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
    """The accounts of one home. Those `configured` in config.toml are not added or removed by
    command."""

    pool: AccountPool
    registry: AccountRegistry
    opener: Opener
    configured: Collection[AccountId]


def open_accounts(
    config: AccountSettings,
    database: Database,
    refresher: Refresher,
    *,
    reading: bool = False,
    anyway: bool = False,
) -> ManagedAccounts:
    """Open the accounts of a home and have the database write their changes.

    Unless `reading`, the caller holds the home's lock. `anyway` includes configured
    accounts that cannot serve. Raises ConfigError.
    """
    registry = AccountRegistry(config.home)
    remembered = remember(config.home, database, reading=reading)
    opener = Opener(refresher=refresher, environment=config.secrets, known=remembered.accounts)
    accounts = _open_each(config.accounts, registry, opener, anyway=anyway)
    pool = AccountPool(accounts, config.routing, time.time, Bindings(remembered.bindings))
    if not reading:
        pool.store.write_to(database)
    return ManagedAccounts(pool=pool, registry=registry, opener=opener, configured=config.accounts)


def _open_each(
    configured: Mapping[AccountId, AccountSpec],
    registry: AccountRegistry,
    opener: Opener,
    *,
    anyway: bool,
) -> Iterator[Account]:
    """Yield the configured accounts, then those that were added by command, whether they can serve
    or not. Raises ConfigError for a configured one that cannot, unless `anyway`."""
    for account, spec in configured.items():
        try:
            yield (opener.open_anyway if anyway else opener.open)(account, spec)
        except ValueError as error:
            raise ConfigError(f"accounts.{account}.key", str(error)) from error
    for account, spec in registry.all().items():
        if account not in configured:
            yield opener.open_anyway(account, spec)
        else:
            logger.warning(
                "account %s: the one in config.toml serves, the one added by command does not",
                account,
            )
