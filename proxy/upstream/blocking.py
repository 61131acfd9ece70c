"""One blocking GET, for commands that ask whether a server answers. Do not call it under trio."""

import time
from dataclasses import dataclass
from email.message import Message
from typing import Final
from urllib.error import URLError
from urllib.request import (
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from proxy.upstream.environment import read_proxies, tls_context

_MOST_BYTES: Final = 65536
"""How much of a body is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`seconds`: from the call to the first byte of the body."""

    status: int
    headers: Message
    body: bytes
    seconds: float


def get(url: str, timeout_seconds: float, *, direct: bool = False) -> Answer:
    """Send one GET without credentials and return the answer, whatever its status; redirects are
    not followed. `direct` ignores the proxies of the environment.

    Raises OSError when no server answers, http.client.HTTPException when what answers does not
    speak HTTP, and ValueError for a URL that cannot be used.
    """
    request = Request(url, headers={"user-agent": "turnlane", "connection": "close"})
    opener = OpenerDirector()  # without the handlers for redirects and error statuses
    opener.add_handler(HTTPHandler())
    if request.type == "https":
        opener.add_handler(HTTPSHandler(context=tls_context()))
    elif request.type != "http":
        raise ValueError(f"not an HTTP URL: {url}")
    proxy_for = None if direct else read_proxies()
    if proxy_for is not None and (proxy := proxy_for(request.type, request.host)) is not None:
        opener.add_handler(ProxyHandler({request.type: proxy}))
    began = time.monotonic()
    try:
        with opener.open(request, timeout=timeout_seconds) as response:
            seconds = time.monotonic() - began
            return Answer(
                status=response.status,
                headers=response.headers,
                body=response.read(_MOST_BYTES),
                seconds=seconds,
            )
    except URLError as error:  # urllib's wrapping of what the connection raised
        raise error.reason if isinstance(error.reason, OSError) else error from None
