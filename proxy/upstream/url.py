"""URLs of upstreams, pure: where a request goes, the origin to connect to, the request target."""

import re
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

OPENAI_URL: Final = "https://api.openai.com/v1"
CHATGPT_URL: Final = "https://chatgpt.com/backend-api/codex"

_PORTS: Final = (("http", 80), ("https", 443))
_AS_IT_IS: Final = "/%:@!$&'()*+,;=~"
_VISIBLE: Final = re.compile(rb"[\x21-\x7e]+")
_AUTHORITY: Final = re.compile(r"[\w.-]+(:\d{1,5})?|\[[\da-fA-F:.]+\](:\d{1,5})?")


def upstream_url(own: str | None, configured: str | None, *, chatgpt: bool) -> str:
    """The base URL of a request: the account's own one, else the configured one, else that of the
    provider to which the credential belongs. `chatgpt`: the credential is a ChatGPT login."""
    return own or configured or (CHATGPT_URL if chatgpt else OPENAI_URL)


class Origin(NamedTuple):
    """The server that a connection leads to."""

    secure: bool
    host: str
    port: int


class Base(NamedTuple):
    """A parsed base URL. `host` is the value of the Host header; `path` has no slash at its end."""

    url: str
    origin: Origin
    host: bytes
    path: bytes

    def target(self, path: str, query: bytes) -> bytes | None:
        """The request target (RFC 9112 §3.2.1), with the query as the client sent it; None if a
        byte of it would break the request line."""
        whole = (self.path + path.encode("ascii") or b"/") + (b"?" + query if query else b"")
        return whole if _VISIBLE.fullmatch(whole) else None


def base_of(url: str) -> Base | None:
    """Parse a base URL; None if no request can be sent there."""
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
