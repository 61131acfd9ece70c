"""A client that reads slowly: its upstream is slowed down, and little is held for it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import trio

from harness.wire.client import WireClient
from harness.wire.upstream import Received, ScriptedUpstream
from harness.wire.websocket import handshake, opened
from proxy.config.load import Config
from proxy.upstream.connection import READ_BYTES
from tests.e2e.process import Child, open_child
from tests.testkit.wire import create, named, post

pytestmark = [
    pytest.mark.load,
    pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the kernel tells no queues"),
]

SECONDS: Final = 60
STREAM_BYTES: Final = 50 * 2**20
EVENT: Final = "x" * 4000
KERNEL_BYTES: Final = 16 * 1024
"""The buffers of the peers, which are made small."""
SLOWLY_READ: Final = 200
STILL_SECONDS: Final = 0.5
FRAMING: Final = 1.01
"""What the chunks of the upstream, which are not held, are longer than the events in them."""


@dataclass(slots=True)
class Flood:
    """A stream of 50 MB, as fast as it is taken."""

    written: int = 0
    ended: bool = False

    async def script(self, sent: Received) -> None:
        sent.stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        await sent.created()
        while self.written < STREAM_BYTES:
            await sent.event("response.output_text.delta", delta=EVENT)
            self.written += len(EVENT)
        await sent.completed()
        self.ended = True

    async def wait_still(self) -> None:
        """Until nothing more is taken of it."""
        before = -1
        while before < self.written:
            before = self.written
            await trio.sleep(STILL_SECONDS)


@pytest.fixture
async def child(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Child]:
    async with open_child(tmp_path / "home", upstream.url) as child:
        yield child


async def ask(client: WireClient, transport: str, thread: str) -> None:
    if transport == "http":
        await client.send(post(named(thread)))
    else:
        await client.send(handshake())
        socket = await opened(client)
        await socket.send(create(thread))


@pytest.mark.parametrize("transport", ["http", "websocket"])
async def test_a_slow_reader_slows_its_upstream_and_little_is_held_for_it(
    transport: str, child: Child, upstream: ScriptedUpstream
) -> None:
    flood = Flood()
    at_once, upstream.script = upstream.script, flood.script
    with trio.fail_after(SECONDS):
        slow = await child.proxy.connect(receive_bytes=KERNEL_BYTES)
        await ask(slow, transport, "slow")
        await upstream.wait_sent(1)
        read = 0
        for _ in range(SLOWLY_READ):
            read += len(await slow.stream.receive_some(1024))
        await flood.wait_still()
        queued = queues(child.port, upstream.port)
        upstream.script = at_once
        quick = await child.proxy.connect()
        await quick.send(post(named("quick")))
        answer = await quick.answer()

    held = flood.written - read - sum(queued)
    assert b"response.completed" in answer.body
    assert not flood.ended
    assert 0 < held < (Config().client.outbox_bytes + READ_BYTES) * FRAMING


def queues(*ports: int) -> list[int]:
    """What waits in the kernel at either end of the connections to some local ports."""
    found = []
    for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
        _, local, remote, _, queue, *_ = line.split()
        if {int(end.partition(":")[2], 16) for end in (local, remote)} & set(ports):
            found += [int(size, 16) for size in queue.split(":")]
    return [size for size in found if size > 1]
