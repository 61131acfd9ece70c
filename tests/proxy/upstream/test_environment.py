"""What the environment says about trust and proxies, and what the clients make of it."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
import trustme

from proxy.upstream.blocking import get
from proxy.upstream.environment import tls_context

SECONDS = 5.0
PROXY_FOR = """
from proxy.upstream.environment import read_proxies
proxy_for = read_proxies()
print(json.dumps(None if proxy_for is None else [proxy_for(*each) for each in
    (("http", "a"), ("https", "a"), ("https", "b:8080"), ("https", "localhost"))]))
"""
GET = """
from proxy.upstream.blocking import get
print(json.dumps([get("http://there.invalid/v1", 5.0).status, get(sys.argv[1], 5.0).status]))
"""
SEND = """
import trio
from proxy.config.settings import UpstreamSettings
from proxy.upstream.client import open_http_upstream
from proxy.upstream.interface import UpstreamRequest
async def send():
    async with open_http_upstream(UpstreamSettings(url=sys.argv[1])) as upstream:
        async with upstream.open(UpstreamRequest(headers=[], body=b"{}")) as reply:
            return [reply.status, (await reply.read()).decode(), "httpx" in sys.modules]
print(json.dumps(trio.run(send)))
"""
TRUSTED = """
from proxy.upstream.environment import tls_context
print(json.dumps(tls_context().cert_store_stats()["x509_ca"]))
"""


def run(program: str, *arguments: str, **variables: str) -> Any:
    """What a program prints that starts with these variables and no others about the network."""
    named = {"http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir"}
    others = {name: text for name, text in os.environ.items() if name.lower() not in named}
    command = [sys.executable, "-c", f"import json, sys{program}", *arguments]
    return json.loads(subprocess.check_output(command, env=others | variables, timeout=60))


@contextmanager
def server(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server's URL, and what it was asked; it gives an answer to a connection."""
    asked: list[bytes] = []

    def serve(listening: socket.socket) -> None:
        for answer in answers:
            peer, _ = listening.accept()
            with peer:
                asked.append(peer.recv(65536))
                peer.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", asked
        thread.join(SECONDS)


@pytest.mark.parametrize(
    ("variables", "proxies"),
    [
        ({}, None),
        ({"NO_PROXY": "*"}, None),
        ({"https_proxy": "http://p"}, [None, "http://p", "http://p", "http://p"]),
        (
            {"ALL_PROXY": "http://p", "HTTP_PROXY": "http://q", "NO_PROXY": "b,localhost"},
            ["http://q", "http://p", None, None],
        ),
    ],
)
def test_a_proxy_is_that_of_the_scheme_unless_the_host_is_excepted(
    variables: dict[str, str], proxies: list[str | None] | None
) -> None:
    assert run(PROXY_FOR, **variables) == proxies


def test_by_default_a_server_is_trusted_by_its_name_and_a_list_of_authorities() -> None:
    context = tls_context()

    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert context.cert_store_stats()["x509_ca"] > 1


def test_an_authority_that_the_environment_names_is_trusted_instead(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(file))

    assert run(TRUSTED, SSL_CERT_FILE=str(file)) == 1


def test_a_blocking_get_goes_through_the_proxy_unless_the_host_is_excepted() -> None:
    answer = b"HTTP/1.1 204 No Content\r\n\r\n"
    with server(answer) as (proxy, asked), server(answer) as (direct, asked_directly):
        statuses = run(GET, direct, HTTP_PROXY=proxy, NO_PROXY="127.0.0.1")

    assert statuses == [204, 204]
    assert asked[0].startswith(b"GET http://there.invalid/v1 HTTP/1.1\r\n")
    assert asked_directly[0].startswith(b"GET / HTTP/1.1\r\n")


@pytest.mark.parametrize("status", [200, 302, 401, 500])
def test_a_blocking_get_returns_any_answer_as_it_is(status: int) -> None:
    head = b"HTTP/1.1 %d X\r\nlocation: /away\r\ncontent-length: 4\r\n\r\n" % status
    with server(head + b"body") as (url, _):
        answer = get(url, SECONDS, direct=True)

    assert (answer.status, answer.headers["location"], answer.body) == (status, "/away", b"body")


def test_a_server_that_does_not_speak_http_is_told_from_one_that_is_not_there() -> None:
    with server(b"SSH-2.0\r\n") as (url, _), pytest.raises(HTTPException):
        get(url, SECONDS, direct=True)
    with pytest.raises(ConnectionRefusedError):
        get(url, SECONDS, direct=True)


@pytest.mark.parametrize("url", ["no url", "ftp://here", "http://[x"])
def test_a_url_that_cannot_be_used_is_a_value_error(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        get(url, SECONDS)


@pytest.mark.parametrize("named", [True, False])
def test_only_a_proxy_in_the_environment_makes_the_upstream_load_httpx(named: bool) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"
    with server(answer) as (url, asked):
        variables = {"HTTP_PROXY": url} if named else {}
        found = run(SEND, "http://there.invalid/v1" if named else url, **variables)

    assert found == [200, "body", named]
    target = b"http://there.invalid/v1/responses" if named else b"/responses"
    assert asked[0].startswith(b"POST " + target + b" HTTP/1.1\r\n")
