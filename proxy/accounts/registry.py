"""AccountBook: the accounts that were added by command; what they are, and where their secret is.

`accounts.json` holds descriptions only. A key that was given on stdin stands in a file of its own
below `accounts/`, as a copied login does, readable by their owner alone; the book names these from
the home on, so that a home that is moved takes them along.
"""

from pathlib import Path
from typing import Final

import msgspec

from proxy.accounts.credentials.auth_file import lock_path
from proxy.accounts.spec import NAME, AccountSpec, with_paths
from proxy.accounts.view import AccountId
from proxy.errors import ConfigError
from proxy.files import replace_file
from proxy.responses.rawjson import UNREADABLE

REGISTRY_NAME: Final = "accounts.json"
SECRETS_NAME: Final = "accounts"
KEY: Final = ".key"
LOGIN: Final = ".json"

Specs = dict[str, AccountSpec]
_specs: Final = msgspec.json.Decoder(Specs)


class AccountRegistry:
    """Its files are written by the process that holds the home's lock. Raises ConfigError for a
    book that cannot be read."""

    def __init__(self, home: Path) -> None:
        self._home = home.absolute()
        self._path = home / REGISTRY_NAME
        self._secrets = home.absolute() / SECRETS_NAME
        self._specs = self._read()

    def all(self) -> dict[AccountId, AccountSpec]:
        return {AccountId(name): spec for name, spec in self._specs.items()}

    def __contains__(self, account: AccountId) -> bool:
        return account in self._specs

    def keep_secret(self, account: AccountId, secret: bytes, suffix: str) -> Path:
        """Write a secret down, for its owner's eyes; returns where. Raises OSError."""
        self._secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.secret_path(account, suffix)
        replace_file(path, secret)
        return path

    def put(self, account: AccountId, spec: AccountSpec) -> None:
        """A secret of the account's own that `spec` does not name goes. Raises OSError; then
        nothing has changed."""
        specs = {**self._specs, checked(account): spec}
        self._write(specs)
        for path in self._own(account):
            if str(path) not in (spec.auth_json, (spec.key or "").removeprefix("file:")):
                path.unlink(missing_ok=True)

    def remove(self, account: AccountId) -> bool:
        """With the secrets that are its own, even if that is all there is; a shared login stays.
        False when there is nothing. Raises OSError."""
        own = [path for path in self._own(account) if path.exists()]
        if account in self._specs:
            self._write({name: spec for name, spec in self._specs.items() if name != account})
        elif not own:
            return False
        for path in own:
            path.unlink(missing_ok=True)
            lock_path(path).unlink(missing_ok=True)
        return True

    def owns(self, path: Path) -> bool:
        """Whether a path leads to a secret of some account's own, which goes with that account."""
        return path.resolve().is_relative_to(self._secrets.resolve())

    def secret_path(self, account: AccountId, suffix: str) -> Path:
        """Where a secret of an account's own stands: `KEY` or `LOGIN`."""
        return self._secrets / f"{checked(account)}{suffix}"

    def _own(self, account: AccountId) -> list[Path]:
        return [self.secret_path(account, suffix) for suffix in (KEY, LOGIN)]

    def _write(self, specs: Specs) -> None:
        written = {name: with_paths(spec, self._from_home) for name, spec in specs.items()}
        replace_file(self._path, msgspec.json.format(msgspec.json.encode(written)))
        self._specs = specs

    def _read(self) -> Specs:
        try:
            found = _specs.decode(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, *UNREADABLE) as error:
            problem = f"cannot be read, move it away to begin anew: {error}"
            raise ConfigError(str(self._path), problem) from error
        return {name: with_paths(spec, self._in_home) for name, spec in found.items()}

    def _from_home(self, path: Path) -> Path:
        """As it is written down."""
        own = path.is_relative_to(self._secrets)
        return path.relative_to(self._home) if own else path

    def _in_home(self, path: Path) -> Path:
        return self._home / path.expanduser()


def checked(account: str) -> AccountId:
    """Raises ValueError for a name that could not stand in a table or a path."""
    if not NAME.fullmatch(account):
        raise ValueError(
            f"{account!r} is no name for an account: small letters, digits, '.', '_' and '-', at "
            "most 40"
        )
    return AccountId(account)
