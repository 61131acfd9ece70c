"""AccountRegistry: the accounts that were added by command, and the files of their secrets.

`accounts.json` holds descriptions only. A key that was given on stdin, or a copied login, is in a
private file under `accounts/`. Their paths are stored relative to the home, so a home can be moved.
"""

from pathlib import Path
from typing import Final

import msgspec

from proxy.accounts.credentials.auth_file import lock_path
from proxy.accounts.spec import AccountSpec, account_id, with_paths
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
    """The accounts of one home. Only the process that holds the home's lock writes them.
    Raises ConfigError if they cannot be read."""

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
        """Write a secret into a private file and return its path. Raises OSError."""
        self._secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.secret_path(account, suffix)
        replace_file(path, secret)
        return path

    def put(self, account: AccountId, spec: AccountSpec) -> None:
        """Add an account, or replace the one of that name, and remove its own secrets that `spec`
        does not name. Raises OSError if it cannot be written; then nothing has changed."""
        specs = {**self._specs, account_id(account): spec}
        self._write(specs)
        for path in self._own(account):
            if str(path) not in (spec.auth_json, (spec.key or "").removeprefix("file:")):
                path.unlink(missing_ok=True)

    def remove(self, account: AccountId) -> bool:
        """Remove an account and the secrets of its own, even if only those are left; a shared login
        stays. Return False if there was nothing to remove. Raises OSError."""
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
        """Whether a path is that of an account's own secret, which is removed with the account."""
        return path.resolve().is_relative_to(self._secrets.resolve())

    def secret_path(self, account: AccountId, suffix: str) -> Path:
        """Return the path of an account's own secret; the suffix is `KEY` or `LOGIN`."""
        return self._secrets / f"{account_id(account)}{suffix}"

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
            problem = f"cannot be read ({error}); move it away to start afresh"
            raise ConfigError(str(self._path), problem) from error
        return {name: with_paths(spec, self._in_home) for name, spec in found.items()}

    def _from_home(self, path: Path) -> Path:
        """Return a path as the registry names it."""
        own = path.is_relative_to(self._secrets)
        return path.relative_to(self._home) if own else path

    def _in_home(self, path: Path) -> Path:
        return self._home / path.expanduser()
