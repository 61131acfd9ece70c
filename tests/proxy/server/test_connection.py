"""What a connection writes: in order, whatever the kernel takes, and together when it is held."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, RawData
from hypercorn.trio.worker_context import WorkerContext
from trio.testing import wait_all_tasks_blocked

from proxy.server.connection import Connection


class Wire:
    """Take `at_once` bytes of each write, the rest when `flowing`; None: the peer has gone."""

    def __init__(self, at_once: int | None) -> None:
        self.at_once = at_once
        self.writes: list[bytes] = []
        self.flowing = trio.Event()
        self.shut_after: int | None = None

    def write(self, data: bytes) -> bytes:
        if self.at_once is None:
            raise trio.BrokenResourceError
        if data[: self.at_once]:
            self.writes.append(data[: self.at_once])
        return data[self.at_once :]

    async def send_all(self, data: bytes) -> None:
        await self.flowing.wait()
        self.writes.append(data)

    def shut(self) -> None:
        self.shut_after = len(self.writes)


class Below:
    """As much of a connection's protocol as writing needs."""

    def __init__(self) -> None:
        self.stream: object | None = object()
        self.handled: list[object] = []

    async def handle(self, event: object) -> None:
        await trio.lowlevel.checkpoint()
        self.handled.append(event)


def connection_over(wire: Wire) -> tuple[Connection, Below]:
    connection = Connection(cast(Any, None), Config(), WorkerContext(None), cast(Any, wire))
    below = Below()
    connection.protocol = cast(Any, below)
    return connection, below


async def test_a_part_of_an_answer_that_has_ended_is_not_written() -> None:
    connection, below = connection_over(wire := Wire(100))
    below.stream = None
    await connection.send_chunk(b"x")

    assert wire.writes == []


async def test_held_bytes_leave_with_those_that_follow() -> None:
    connection, _ = connection_over(wire := Wire(100))
    connection.hold()
    await connection.protocol_send(RawData(b"head"))
    assert wire.writes == []
    connection.hold()
    await connection.send_chunk(b"x" * 17)
    assert wire.writes == []
    await connection.protocol_send(RawData(b"end"))
    await connection.protocol_send(RawData(b"more"))

    assert wire.writes == [b"head11\r\n" + b"x" * 17 + b"\r\nend", b"more"]


async def test_held_bytes_leave_before_the_connection_is_shut() -> None:
    connection, _ = connection_over(wire := Wire(100))
    connection.hold()
    await connection.protocol_send(RawData(b"head"))
    await connection.protocol_send(Closed())

    assert (wire.writes, wire.shut_after) == ([b"head"], 1)


async def test_writes_keep_their_order_after_one_that_waits(nursery: trio.Nursery) -> None:
    connection, _ = connection_over(wire := Wire(2))
    for data in (b"abcd", b"ef", b"gh"):
        nursery.start_soon(connection.protocol_send, RawData(data))
        await wait_all_tasks_blocked()
    assert wire.writes == [b"ab"]
    wire.flowing.set()
    await wait_all_tasks_blocked()

    assert b"".join(wire.writes) == b"abcdefgh"


async def test_a_write_is_not_cancelled_half_way(nursery: trio.Nursery) -> None:
    connection, _ = connection_over(wire := Wire(2))
    ends: list[str] = []

    async def write(data: bytes, scope: trio.CancelScope) -> None:
        with scope:
            await connection.protocol_send(RawData(data))
        ends.append(data.decode())

    scopes = [trio.CancelScope(), trio.CancelScope()]
    for data, scope in zip((b"abcd", b"ef"), scopes, strict=True):
        nursery.start_soon(write, data, scope)
        await wait_all_tasks_blocked()
        scope.cancel()
    await wait_all_tasks_blocked()
    assert ends == []
    wire.flowing.set()
    await wait_all_tasks_blocked()

    assert ends == ["abcd", "ef"]
    assert b"".join(wire.writes) == b"abcdef"


@pytest.mark.parametrize("data", [b"x", b"xy"])
async def test_a_peer_that_has_gone_closes_the_protocol(data: bytes) -> None:
    connection, below = connection_over(Wire(None))
    await connection.protocol_send(RawData(data))

    assert [type(event) for event in below.handled] == [Closed]
