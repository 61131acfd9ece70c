"""The operator's commands about keys, on the key ring of one home.

The same function serves a process that runs and a home that no process holds.
"""

from typing import assert_never

from proxy.control.commands import (
    AddKey,
    KeyCommand,
    KeyMade,
    KeyRevoked,
    KeysListed,
    ListKeys,
    RevokeKey,
    ShownKey,
)
from proxy.errors import CommandFailed
from proxy.keys import Key, KeyRing


def about_keys(keys: KeyRing, command: KeyCommand) -> KeyMade | KeysListed | KeyRevoked:
    """Carry out one command. Raises CommandFailed."""
    try:
        match command:
            case AddKey(name=name):
                made = keys.add(name)
                return KeyMade(key=_shown(made.key), secret=made.secret)
            case ListKeys():
                return KeysListed(keys=tuple(map(_shown, keys.all())))
            case RevokeKey(id=key_id):
                if not keys.revoke(key_id):
                    raise CommandFailed(f"there is no key {key_id}")
                return KeyRevoked(revoked=key_id, left=len(keys))
            case _:
                assert_never(command)
    except (ValueError, OSError) as error:
        raise CommandFailed(str(error)) from error


def _shown(key: Key) -> ShownKey:
    return ShownKey(id=key.id, name=key.name, created=key.created)
