"""What the environment says about reaching a server: whose certificates to trust, which proxy.

The variables are those that curl, Python and httpx share: SSL_CERT_FILE, SSL_CERT_DIR, HTTP_PROXY,
HTTPS_PROXY, ALL_PROXY and NO_PROXY, in either case.
"""

import os
import ssl
from collections.abc import Callable
from urllib.request import getproxies, proxy_bypass

import certifi


def tls_context() -> ssl.SSLContext:
    """A client's TLS context: trust what the environment names, or else certifi's list.

    Loading the certificates takes about 40 ms.
    """
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file:
        context = ssl.create_default_context(cafile=file)
    elif folder:
        context = ssl.create_default_context(capath=folder)
    else:
        context = ssl.create_default_context(cafile=certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


def read_proxies() -> Callable[[str, str], str | None] | None:
    """Return a function from scheme and `host[:port]` to the URL of the proxy to use; None when the
    environment names no proxy at all."""
    proxies = getproxies()
    if not proxies.keys() & {"http", "https", "all"}:
        return None

    def proxy_for(scheme: str, host: str) -> str | None:
        named = proxies.get(scheme) or proxies.get("all")
        return named if named and not proxy_bypass(host) else None

    return proxy_for
