"""What a page in a real browser may do with a turnlane on the same machine: run with -m browser."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h11
import pytest
import trio

from harness.wire.client import HOST
from harness.wire.upstream import Received, ScriptedUpstream, at_once, on_go, open_upstream
from tests.e2e.proxy import Proxy, Status, open_proxy
from tests.testkit.wire import named, post

pytestmark = pytest.mark.browser

SECONDS = 60
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
REBOUND = "rebound.example"
"""A name that the browser is made to resolve to this machine, as a rebinding page has it."""
PAGE = """<!doctype html><script>
const { base, tries } = %s;
const told = async (response) => {
  const body = await response.text();
  return {
    status: response.status,
    refusal: response.headers.get("x-turnlane-refusal"),
    retryAfter: response.headers.get("retry-after"),
    code: body.startsWith("{") ? (JSON.parse(body).error || {}).code : undefined,
  };
};
const tried = (what) => fetch(base + what.path, what.how).then(told, () => "blocked");
const socket = () => new Promise((resolve) => {
  const opened = new WebSocket(base.replace("http", "ws") + "/v1/responses");
  opened.onopen = () => resolve("open");
  opened.onerror = () => resolve("refused");
});
(async () => {
  const found = { socket: await socket() };
  for (const [name, what] of Object.entries(tries)) found[name] = await tried(what);
  await fetch("/found", { method: "POST", body: JSON.stringify(found) });
})();
</script>"""

Try = dict[str, Any]
STATUS: Try = {"path": "/status", "how": {}}


def turn(mode: str = "cors", **headers: str) -> Try:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    how = {"method": "POST", "mode": mode, "headers": named, "body": '{"stream":true}'}
    return {"path": "/v1/responses", "how": how}


ATTACKS = {
    "status": STATUS,
    "a form's post": turn(content_type="text/plain"),
    "a post that cannot read": turn("no-cors", content_type="text/plain"),
    "a post with headers": turn(content_type="application/json", thread_id="page"),
}


@dataclass(eq=False)
class Site:
    """A web site of one page, which posts back what it found."""

    told: dict[str, Any] = field(default_factory=dict)
    port: int = 0
    found: dict[str, Any] = field(default_factory=dict)
    done: trio.Event = field(default_factory=trio.Event)

    async def serve(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER)
        body = bytearray()
        head: h11.Request | None = None
        async with stream:
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    connection.receive_data(await stream.receive_some())
                elif isinstance(event, h11.Request):
                    head = event
                elif isinstance(event, h11.Data):
                    body += event.data
                else:
                    return
            assert head is not None
            page = (PAGE % json.dumps(self.told)).encode() if head.target == b"/" else b""
            headers = [("content-type", "text/html"), ("content-length", str(len(page)))]
            answer = h11.Response(status_code=200, headers=[*headers, ("connection", "close")])
            for part in (answer, h11.Data(data=page), h11.EndOfMessage()):
                await stream.send_all(connection.send(part) or b"")
        if head.target == b"/found":
            self.found = json.loads(bytes(body))
            self.done.set()


@asynccontextmanager
async def open_site() -> AsyncIterator[Site]:
    site = Site()
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(trio.serve_tcp, site.serve, 0)
        site.port = serving[0].socket.getsockname()[1]
        yield site
        nursery.cancel_scope.cancel()


async def visit(
    site: Site, proxy: Proxy, tries: dict[str, Try], folder: Path, host: str = HOST
) -> dict[str, Any]:
    """Open the page in a browser of its own, and bring what it found."""
    site.told = {"base": f"http://{host}:{proxy.port}", "tries": tries}
    chromium = os.environ.get("TURNLANE_CHROMIUM") or shutil.which("chromium")
    assert chromium is not None, "these tests need Chromium"
    line = [
        chromium,
        *FLAGS,
        f"--user-data-dir={folder}",
        f"--host-resolver-rules=MAP {REBOUND} {HOST}",
        f"http://{host}:{site.port}/",
    ]
    nowhere = subprocess.DEVNULL
    process = await trio.lowlevel.open_process(
        line, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
    )
    try:
        with trio.fail_after(SECONDS):
            await site.done.wait()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        with trio.CancelScope(shield=True):
            await process.wait()
    return site.found


def refused_here(status: Status) -> int:
    found: int = status["refusals"].get("foreign_origin", 0)
    return found


async def test_a_page_of_a_foreign_origin_spends_nothing_and_reads_nothing(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with open_proxy(upstream.url) as proxy, open_site() as site:
        found = await visit(site, proxy, ATTACKS, tmp_path / "profile")
        status = await proxy.status()

    assert found == {
        "socket": "refused",
        "status": "blocked",
        "a form's post": "blocked",
        "a post that cannot read": {"status": 0, "refusal": None, "retryAfter": None},
        "a post with headers": "blocked",
    }
    assert upstream.sent == []
    assert refused_here(status) == 5  # the last one at its preflight
    assert status["outcomes"] == {"refused": 5}


async def test_a_page_whose_name_was_rebound_to_this_machine_spends_nothing(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with open_site() as site:
        origins = [f"http://{REBOUND}:{site.port}"]  # so its Host alone is what gives it away
        async with open_proxy(upstream.url, server={"origins": origins}) as proxy:
            found = await visit(site, proxy, ATTACKS, tmp_path / "profile", REBOUND)
            status = await proxy.status()

    assert found["socket"] == "refused"
    assert found["status"] == found["a form's post"] == found["a post with headers"] == "blocked"
    assert upstream.sent == []
    assert status["outcomes"] == {"refused": refused_here(status)}
    assert refused_here(status) == 5


async def test_a_page_of_a_configured_origin_reads_why_it_was_refused(tmp_path: Path) -> None:
    async def first_waits(sent: Received) -> None:
        await (on_go if sent.number == 1 else at_once)(sent)

    tries = {
        "status": STATUS,
        "a turn": turn(content_type="text/plain"),
        "a full task": turn(thread_id="child", session_id="root", x_codex_parent_thread_id="root"),
        "a busy lane": turn(thread_id="root", session_id="root", authorization="Bearer sk-page"),
    }
    async with (
        open_upstream(first_waits) as upstream,
        open_site() as site,
        open_proxy(
            upstream.url,
            server={"origins": [f"http://{HOST}:{site.port}"]},
            workflow={"turns": 1, "kept": 0},
        ) as proxy,
    ):
        client = await proxy.connect()
        await client.send(post(named("root")))
        await upstream.wait_sent(1)
        found = await visit(site, proxy, tries, tmp_path / "profile")

    assert found["socket"] == "open"
    assert found["status"]["status"] == found["a turn"]["status"] == 200
    assert found["a full task"] == {
        "status": 429,
        "refusal": "workflow_concurrency_exhausted",
        "retryAfter": "5",
        "code": "queue_capacity_exceeded",
    }
    assert found["a busy lane"] == {
        "status": 503,
        "refusal": "lane_busy",
        "retryAfter": "2",
        "code": "server_busy",
    }
    assert len(upstream.sent) == 2
