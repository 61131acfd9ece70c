"""Keys of callers: stored as hashes, changed live, and shown once, when they are made.

A key is 256 random bits, so a plain SHA-256 of it cannot be guessed back; a slow hash protects
passwords, which people choose.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from lifecycle import PrincipalId
from proxy.errors import ConfigError
from proxy.files import replace_file

PREFIX: Final = "tl_"
KEYS_NAME: Final = "keys.json"
MOST_KEYS: Final = 256
NAME_CHARACTERS: Final = 100


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is stored. `id` is the principal; `created` is seconds since the epoch."""

    id: str
    name: str
    sha256: str
    created: float


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A new key with its `secret`, which is kept nowhere."""

    key: Key
    secret: str


class KeyRing:
    """The keys of one home. Its file is written by the process that holds the home's lock."""

    def __init__(self, home: Path, wall: Callable[[], float] = time.time) -> None:
        self._path = home / KEYS_NAME
        self._wall = wall
        self._keys: dict[str, Key] = {key.id: key for key in self._read()}

    def __len__(self) -> int:
        return len(self._keys)

    def all(self) -> tuple[Key, ...]:
        """Return the keys, oldest first."""
        return tuple(self._keys.values())

    def add(self, name: str) -> IssuedKey:
        """Make a key. Raises ValueError for a bad name or too many keys, OSError if it cannot be
        stored; then there is no new key."""
        if not (0 < len(name) <= NAME_CHARACTERS and name.isprintable()):
            raise ValueError(f"a name must have 1 to {NAME_CHARACTERS} printable characters")
        if len(self._keys) >= MOST_KEYS:
            raise ValueError(f"there are already {MOST_KEYS} keys")
        secret = PREFIX + secrets.token_urlsafe(32)
        key = Key(
            id=f"key-{secrets.token_hex(6)}", name=name, sha256=_hash(secret), created=self._wall()
        )
        self._keep({**self._keys, key.id: key})
        return IssuedKey(key, secret)

    def revoke(self, key_id: str) -> bool:
        """Revoke a key; False if there is no such key. Raises OSError; then the key still works."""
        if key_id not in self._keys:
            return False
        self._keep({name: key for name, key in self._keys.items() if name != key_id})
        return True

    def holder(self, secret: str) -> PrincipalId | None:
        """Return the principal of a key. A wrong key takes as long as a right one."""
        wanted = _hash(secret)
        found: PrincipalId | None = None
        for key in self._keys.values():
            if hmac.compare_digest(key.sha256, wanted):
                found = PrincipalId(key.id)
        return found

    def knows(self, principal: PrincipalId) -> bool:
        return principal in self._keys

    def _read(self) -> list[Key]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[Key])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(str(self._path), f"cannot be used: {error}") from error

    def _keep(self, keys: dict[str, Key]) -> None:
        """Write the file before the change takes effect, so a restart finds what took effect."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        written = msgspec.json.encode(list(keys.values()))
        replace_file(self._path, msgspec.json.format(written))
        self._keys = keys


def turnlane_key(authorization: bytes) -> bytes | None:
    """Return the turnlane key in an Authorization header; such a header must not travel upstream.

    The scheme and the spaces do not matter: what another server would read as a key is one here.
    """
    words = authorization.replace(b",", b" ").split()
    return next((word for word in words if word.startswith(PREFIX.encode())), None)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
