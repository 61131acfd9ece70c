"""Target, pure: a base URL as an origin to connect to, and the request target below it."""

import re
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

OPENAI_URL: Final = "https://api.openai.com/v1"
CHATGPT_URL: Final = "https://chatgpt.com/backend-api/codex"
"""Where a request goes that carries `chatgpt-account-id`, when no URL is configured."""

_PORTS: Final = (("http", 80), ("https", 443))
_AS_IT_IS: Final = "/%:@!$&'()*+,;=~"
_VISIBLE: Final = re.compile(rb"[\x21-\x7e]+")
_AUTHORITY: Final = re.compile(r"[\w.-]+(:\d{1,5})?|\[[\da-fA-F:.]+\](:\d{1,5})?")


class Origin(NamedTuple):
    """What a connection leads to."""

    secure: bool
    host: str
    port: int


class Base(NamedTuple):
    """A base URL, taken apart. `host` is the header's value, `path` has no slash at its end."""

    url: str
    origin: Origin
    host: bytes
    path: bytes

    def target(self, path: str, query: bytes) -> bytes | None:
        """The request target; None if it could not be one line. The query is sent as it came."""
        whole = self.path + path.encode("ascii") + (b"?" + query if query else b"")
        return whole if _VISIBLE.fullmatch(whole) else None


def base_of(url: str) -> Base | None:
    """None for what no request can be sent to."""
    try:
        parts = urlsplit(url)
        scheme = dict(_PORTS).get(parts.scheme)
        port = parts.port or scheme
    except ValueError:
        return None
    if scheme is None or port is None or not parts.hostname:
        return None
    try:
        host = parts.hostname.encode("ascii" if parts.hostname.isascii() else "idna").decode()
    except UnicodeError:
        return None
    name = f"[{host}]" if ":" in host else host
    authority = name if port == scheme else f"{name}:{port}"
    if not _AUTHORITY.fullmatch(authority) or parts.username is not None:
        return None
    return Base(
        url=url,
        origin=Origin(parts.scheme == "https", host, port),
        host=authority.encode(),
        path=quote(parts.path.rstrip("/"), safe=_AS_IT_IS).encode(),
    )
