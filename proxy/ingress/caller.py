"""Who calls, pure: the turnlane key of a request, and the principal that holds it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lifecycle import PrincipalId
from proxy.headers import find, is_bearer_key
from proxy.ingress.ask import LOCAL
from proxy.keys import PREFIX, KeyRing

_KEY_HEADERS: Final = (b"x-turnlane-key", b"x-api-key")


@dataclass(frozen=True, slots=True)
class Stranger:
    """Nobody we know: 401."""

    detail: str


def caller(headers: Iterable[tuple[bytes, bytes]], keys: KeyRing) -> PrincipalId | Stranger:
    """The principal: `local` while there are no keys, else the id of the key presented.

    Looked for in `x-turnlane-key`, then `x-api-key`, then Bearer; the first one found decides.
    """
    if not len(keys):
        return LOCAL
    secret = _presented(list(headers))
    if secret is None:
        return Stranger("this turnlane wants a key, in the header x-turnlane-key")
    return keys.holder(secret) or Stranger("this key is not known, or was revoked")


def _presented(headers: list[tuple[bytes, bytes]]) -> str | None:
    for name in _KEY_HEADERS:
        value = find(headers, name)
        if value is not None and (value.startswith(PREFIX) or name == _KEY_HEADERS[0]):
            return value
    bearer = find(headers, b"authorization")
    if bearer is not None and is_bearer_key(bearer.encode("latin-1")):
        return bearer.partition(" ")[2].strip()
    return None
