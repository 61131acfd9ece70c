"""What turnlane itself says no to over HTTP, and how: seen by its client, and nothing sent up."""

import zlib

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from lifecycle import Limits
from proxy.config.settings import ClientSettings
from proxy.journal.record import Outcome
from tests.testkit.asgi import HttpClient
from tests.testkit.events import completed, created, post
from tests.testkit.runtime import Bench
from tests.testkit.upstream import answer, streaming

CODEX = [("x-codex-window-id", "w:0")]


def announcing(bench: Bench, size: int, *headers: tuple[str, str]) -> HttpClient:
    """A POST whose body is announced, and not sent."""
    named = [("content-length", str(size)), ("thread-id", "t"), ("session-id", "s"), *headers]
    return bench.request("POST", "/v1/responses", headers=named)


async def busy(bench: Bench) -> None:
    """Take the only place there is."""
    holder = bench.post(thread="holder")
    await holder.wait_for("response.created")


async def test_a_refused_body_is_read_on_so_that_the_answer_is_seen(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    endless = streaming(created(), trio.Event())
    bench = Bench(nursery, endless, limits=Limits(turns=1))

    await busy(bench)
    client = announcing(bench, 1_000_000)
    await client.wait_until(lambda: client.chunks)
    answered_at = trio.current_time()
    for _ in range(40):
        await client.send_body(b"x" * 20_000, more=True)
        await trio.sleep(0.1)
    before = client.complete
    await client.send_body(b"", more=False)
    await client.wait_returned()

    assert answered_at == 0
    assert (client.refused.status, client.refused.code) == (503, "server_busy")
    assert client.refused.reason == "turns_at_capacity"
    assert client.refused.retry_after == "2"
    assert client.headers["connection"] == "close"
    assert not before
    assert trio.current_time() == pytest.approx(4)
    assert bench.held_bytes == len(post())
    assert len(bench.upstream.sent) == 1


async def test_a_refused_body_that_does_not_end_is_left_after_5_seconds(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created(), trio.Event()), limits=Limits(turns=1))

    await busy(bench)
    client = announcing(bench, 1_000_000)
    await client.wait_returned()

    assert client.refused.reason == "turns_at_capacity"
    assert trio.current_time() == pytest.approx(5)


async def test_a_refused_client_that_hangs_up_is_let_go(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created(), trio.Event()), limits=Limits(turns=1))

    await busy(bench)
    client = announcing(bench, 1_000_000)
    await trio.sleep(1)
    await client.hang_up()
    await client.wait_returned()

    assert not client.complete
    assert trio.current_time() == pytest.approx(1)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(turns=1), "turns_at_capacity"),
        (Limits(lanes=1, lanes_kept=0), "lanes_at_capacity"),
        (Limits(memory_bytes=1000), "memory_at_capacity"),
    ],
)
async def test_each_ceiling_says_its_name_and_its_number(
    limits: Limits, reason: str, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B20."""
    bench = Bench(nursery, streaming(created(), trio.Event()), limits=limits)

    await busy(bench)
    client = announcing(bench, 2000)
    await client.wait_until(lambda: client.chunks)
    await client.send_body(b"", more=False)
    await client.wait_returned()

    assert (client.refused.status, client.refused.reason) == (503, reason)
    assert client.refused.retry_after == "2"
    assert "asked no provider" in client.refused.message
    assert bench.records[-1].refusal == reason
    assert len(bench.upstream.sent) == 1


async def test_workers_are_refused_before_the_lanes_kept_for_interactive_turns(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scripts = [streaming(created(), trio.Event()) for _ in range(3)]
    bench = Bench(nursery, *scripts, limits=Limits(lanes=3, lanes_kept=1))

    workers = [bench.post(thread=f"w{i}", parent="p", session="p") for i in range(2)]
    await wait_all_tasks_blocked()
    third = bench.post(thread="w3", parent="p", session="p")
    await third.wait_returned()
    interactive = bench.post(thread="p", session="p")
    await interactive.wait_for("response.created")

    assert [worker.types for worker in workers] == [["response.created"]] * 2
    assert third.refused.reason == "lanes_at_capacity"
    assert bench.lanes == 3


async def test_a_drain_refuses_with_the_seconds_that_are_left_and_two(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery)

    bench.runtime.admission.close_door(10)
    await trio.sleep(2.5)
    client = bench.post()
    await client.wait_returned()

    assert (client.refused.status, client.refused.reason) == (503, "draining")
    assert client.refused.retry_after == "10"


async def test_a_body_that_falls_silent_is_refused_after_10_seconds(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery)

    client = announcing(bench, 100)
    await client.send_body(b"{", more=True)
    await trio.sleep(9)
    await client.send_body(b"}", more=True)
    await client.wait_until(lambda: client.chunks)

    assert client.status == 408
    assert client.headers["x-turnlane-refusal"] == "body_timeout"
    assert client.headers["connection"] == "close"
    assert "retry-after" not in client.headers
    assert trio.current_time() == pytest.approx(19)
    assert (bench.turns, bench.held_bytes) == (0, 0)


async def test_a_body_that_trickles_is_refused_after_120_seconds(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery)

    client = announcing(bench, 10_000)
    while not client.chunks:
        await client.send_body(b" ", more=True)
        await trio.sleep(5)

    assert client.headers["x-turnlane-refusal"] == "body_timeout"
    assert trio.current_time() == pytest.approx(120, abs=5)
    assert bench.upstream.sent == []


async def test_an_announced_body_that_is_too_large_is_refused_unread(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery)

    client = announcing(bench, 64 * 2**20 + 1)
    await client.wait_returned()

    assert (client.refused.status, client.refused.reason) == (413, "too_large")
    assert bench.outcomes == [Outcome.REFUSED]
    assert bench.runtime.admission.statistics().turns.refused == 0


async def test_a_body_that_turns_out_too_large_is_refused(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, client=ClientSettings(body_bytes=1000))

    client = bench.request("POST", "/v1/responses")
    client.send_body_nowait(b"x" * 1001)
    await client.wait_returned()

    assert (client.refused.status, client.refused.reason) == (413, "too_large")
    assert bench.at_rest


async def test_an_unannounced_body_is_held_against_the_memory_gate_as_it_comes(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, limits=Limits(memory_bytes=10_000))

    client = bench.request("POST", "/v1/responses")
    await client.send_body(b"x" * 6000, more=True)
    await wait_all_tasks_blocked()
    held = bench.held_bytes
    await client.send_body(b"x" * 6000, more=True)
    await client.send_body(b"", more=False)
    await client.wait_returned()

    assert held == 6000
    assert (client.refused.status, client.refused.reason) == (503, "memory_at_capacity")
    assert bench.at_rest


async def test_a_large_body_waits_below_until_its_turn_is_admitted(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created(), 0.5, completed()), answer())

    holder = bench.post()
    await holder.wait_for("response.created")
    second = bench.request(
        "POST", "/v1/responses", headers=[("thread-id", "thread"), ("session-id", "session")]
    )
    await second.send_body(post(input="x" * 100_000), more=True)
    await second.send_body(b"", more=False)
    await wait_all_tasks_blocked()
    held = bench.held_bytes
    await second.wait_returned()

    assert held == len(post())
    assert second.types[-1] == "response.completed"
    assert len(bench.upstream.sent[1].body) > 100_000


@pytest.mark.parametrize(
    ("body", "coding", "status", "reason"),
    [
        (b"{", "", 400, "bad_request"),
        (b"[]", "", 400, "bad_request"),
        (b'{"stream":"yes"}', "", 400, "bad_request"),
        (b"not gzip", "gzip", 400, "bad_request"),
        (post(), "br", 415, "unsupported_encoding"),
        (zlib.compress(b" " * 10_000), "deflate", 413, "too_large"),
    ],
    ids=["broken", "no object", "wrong type", "corrupt", "unknown coding", "bomb"],
)
@pytest.mark.parametrize("codex", [False, True])
async def test_a_body_that_cannot_be_used_is_a_final_no(
    body: bytes,
    coding: str,
    status: int,
    reason: str,
    codex: bool,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    """Field case B77; to Codex in the one form whose words it shows."""
    bench = Bench(nursery, client=ClientSettings(body_bytes=5000))

    headers = [("content-encoding", coding)] if coding else []
    client = bench.post(body, headers=[*headers, *(CODEX if codex else [])])
    await client.wait_returned()

    assert client.refused.status == (400 if codex else status)
    assert client.refused.reason == reason
    assert client.refused.code == ("invalid_prompt" if codex else reason)
    assert client.refused.retry_after is None
    assert bench.outcomes == [Outcome.REFUSED]
    assert bench.at_rest
    assert bench.upstream.sent == []


async def test_a_hang_up_behind_a_body_that_nobody_has_admitted_is_noticed_within_a_second(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created(), trio.Event()))

    holder = bench.post()
    await holder.wait_for("response.created")
    second = bench.request(
        "POST", "/v1/responses", headers=[("thread-id", "thread"), ("session-id", "session")]
    )
    await second.send_body(b"x" * 100_000, more=True)
    await second.hang_up()
    await second.wait_returned()

    assert trio.current_time() <= 1.0
    assert bench.turns == 1
