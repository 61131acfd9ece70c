"""The scripted upstream itself, spoken to by peers that are not what it expects."""

import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
import trio.testing

from harness.recall.faults import Fault
from harness.recall.plan import Planned
from harness.recall.requests import body, headers
from harness.recall.script import expected_input
from harness.recall.stage import Stage
from harness.recall.upstream import PlanScript, open_plan
from harness.wire.client import HOST, fetch, request
from tests.harness.recall.kit import planned_fault, small_plan

PLAN = small_plan(sessions=12)


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[PlanScript, int]]:
    stage = Stage(session.thread_id for session in PLAN.waves)
    with trio.fail_after(5):
        async with open_plan(PLAN, stage) as (upstream, port):
            yield upstream, port


class Awaited(Counter[str]):
    """A counter that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.some = trio.Event()

    def __setitem__(self, tag: str, count: int) -> None:
        super().__setitem__(tag, count)
        self.some.set()


def awaited(upstream: PlanScript) -> tuple[Awaited, Awaited]:
    """The sends and the cuts of an upstream."""
    sends, cuts = Awaited(), Awaited()
    upstream.memory.sends, upstream.memory.cuts = sends, cuts
    return sends, cuts


def post(planned: Planned) -> bytes:
    """Return the bytes of a whole request."""
    session, exchange = planned.session, planned.exchange
    data = msgspec.json.encode(body(session, exchange, expected_input(session, exchange)))
    return request("POST", "/v1/responses?q=1", headers(session, exchange), data)


async def read_until(stream: trio.abc.ReceiveStream, end: bytes) -> bytes:
    seen = bytearray()
    while end not in seen and (data := await stream.receive_some(65536)):
        seen += data
    return bytes(seen)


HEALTHY = next(p for p in PLAN.exchanges() if p.fault is None and not p.turn.held)
DONE = b"response.completed"
LAST_CHUNK = b"\r\n0\r\n\r\n"


async def test_models_are_there_and_anything_else_is_noted() -> None:
    async with listening() as (upstream, port):
        models = await fetch(port, "GET", "/v1/models?client_version=1")
        other = await fetch(port, "GET", "/v1/files")

    assert (models.status, models.body) == (200, b'{"models":[]}')
    assert other.status == 404
    assert upstream.memory.problems == ["unexpected GET /v1/files"]


async def test_a_request_of_no_session_is_noted() -> None:
    async with listening() as (upstream, port), await trio.open_tcp_stream(HOST, port) as stream:
        await stream.send_all(b"POST /v1/responses HTTP/1.1\r\nhost: up\r\n\r\n")
        answer = await read_until(stream, b"not scripted")

    assert answer.startswith(b"HTTP/1.1 404")
    assert upstream.memory.problems == ["a request of an unknown thread None"]


async def test_requests_follow_each_other_on_one_connection() -> None:
    async with listening() as (upstream, port), await trio.open_tcp_stream(HOST, port) as stream:
        for _ in range(2):
            await stream.send_all(post(HEALTHY))
            assert DONE in await read_until(stream, LAST_CHUNK)

    assert upstream.memory.sends == {HEALTHY.exchange.tag: 2}
    assert (upstream.memory.problems, sum(upstream.memory.cuts.values())) == ([], 0)


async def test_a_request_that_is_early_is_served_in_its_turn() -> None:
    held = next(p for p in PLAN.exchanges() if p.turn.held)
    async with listening() as (upstream, port), await trio.open_tcp_stream(HOST, port) as stream:
        sends, _ = awaited(upstream)
        await stream.send_all(post(held))
        await sends.some.wait()
        await stream.send_all(post(HEALTHY))
        await trio.testing.wait_all_tasks_blocked(0.01)
        upstream.stage.open(held.turn.number)
        answers = b""
        while answers.count(LAST_CHUNK) < 2:
            answers += await read_until(stream, LAST_CHUNK)

    assert upstream.memory.sends == {held.exchange.tag: 1, HEALTHY.exchange.tag: 1}


async def test_a_connection_that_is_to_be_closed_is() -> None:
    closing = post(HEALTHY).replace(b"host: 127.0.0.1", b"host: 127.0.0.1\r\nconnection: close")
    async with listening() as (_, port), await trio.open_tcp_stream(HOST, port) as stream:
        await stream.send_all(closing)
        await read_until(stream, LAST_CHUNK)

        assert await stream.receive_some() == b""


@pytest.mark.parametrize("sent", [b"", b"POST /v1/resp", b"nonsense\r\n\r\n"])
async def test_a_peer_that_goes_away_or_makes_no_sense_is_let_go(sent: bytes) -> None:
    async with listening() as (upstream, port), await trio.open_tcp_stream(HOST, port) as stream:
        if sent:
            await stream.send_all(sent)
        await stream.send_eof()
        await read_until(stream, b"never")

    assert upstream.memory.problems == []


@pytest.mark.parametrize("fault", [Fault.HANG_UP_WAITING, Fault.HANG_UP_STREAMING])
async def test_a_client_that_leaves_is_seen_to_have_left(fault: Fault) -> None:
    left = planned_fault(PLAN, fault)
    async with listening() as (upstream, port):
        _, cuts = awaited(upstream)
        async with await trio.open_tcp_stream(HOST, port) as stream:
            await stream.send_all(post(left))
            if fault is Fault.HANG_UP_STREAMING:
                await read_until(stream, b"delta")
        await cuts.some.wait()

    assert upstream.memory.cuts == {left.exchange.tag: 1}


async def test_a_client_that_resets_its_connection_is_seen_to_have_left() -> None:
    left = planned_fault(PLAN, Fault.HANG_UP_WAITING)
    async with listening() as (upstream, port):
        sends, cuts = awaited(upstream)
        async with await trio.open_tcp_stream(HOST, port) as stream:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await stream.send_all(post(left))
            await sends.some.wait()
        await cuts.some.wait()

    assert upstream.memory.cuts == {left.exchange.tag: 1}


async def test_a_client_that_leaves_while_it_is_written_to_is_seen_to_have_left() -> None:
    slow = planned_fault(PLAN, Fault.SLOW_READER)
    async with listening() as (upstream, port):
        _, cuts = awaited(upstream)
        async with await trio.open_tcp_stream(HOST, port) as stream:
            await stream.send_all(post(slow))
            await read_until(stream, b"delta")
        await cuts.some.wait()

    assert upstream.memory.cuts == {slow.exchange.tag: 1}
