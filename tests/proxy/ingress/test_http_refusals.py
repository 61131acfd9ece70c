"""HTTP requests that turnlane refuses: how their bodies are read, timed, bounded and held."""

import zlib

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lifecycle import Limits
from proxy.config.settings import ClientSettings
from proxy.journal.record import Outcome
from tests.testkit.asgi import HttpClient
from tests.testkit.events import completed, created, post
from tests.testkit.runtime import Bench, OpenBench, Pairs
from tests.testkit.upstream import answer, streaming

CODEX = [("x-codex-window-id", "w:0")]
SAME_LANE: Pairs = [("thread-id", "holder"), ("session-id", "session")]


def announcing(bench: Bench, size: int) -> HttpClient:
    """A POST whose body is announced, and not sent."""
    return bench.request("POST", "/v1/responses", headers=[("content-length", str(size))])


@pytest.fixture
async def busy(open_bench: OpenBench) -> Bench:
    """A bench whose only permit is taken."""
    bench = open_bench(streaming(created(), trio.Event()), limits=Limits(turns=1))
    await bench.post(thread="holder").wait_for("response.created")
    return bench


# A refused body.


async def test_a_refused_body_is_read_on_so_that_its_client_sees_the_answer(busy: Bench) -> None:
    client = announcing(busy, 1_000_000)
    await client.wait_until(lambda: client.chunks)
    answered_at = trio.current_time()
    for _ in range(40):
        await client.send_body(b"x" * 20_000, more=True)
        await trio.sleep(0.1)
    before = client.complete
    await client.send_body(b"", more=False)
    await client.wait_returned()

    assert answered_at == 0
    assert client.refused.reason == "turns_at_capacity"
    assert client.headers["connection"] == "close"
    assert not before
    assert trio.current_time() == pytest.approx(4)
    assert busy.held_bytes == len(post())
    assert len(busy.upstream.sent) == 1


async def test_a_refused_body_that_does_not_end_is_left_after_5_seconds(busy: Bench) -> None:
    client = await announcing(busy, 1_000_000).wait_returned()

    assert client.refused.reason == "turns_at_capacity"
    assert trio.current_time() == pytest.approx(5)


async def test_a_refused_client_that_hangs_up_is_let_go(busy: Bench) -> None:
    client = announcing(busy, 1_000_000)
    await trio.sleep(1)
    await client.hang_up()
    await client.wait_returned()

    assert not client.complete
    assert trio.current_time() == pytest.approx(1)


# Time.


async def test_a_body_that_falls_silent_is_refused_after_10_seconds(bench: Bench) -> None:
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


# Size and memory.


async def test_a_body_announced_as_too_large_is_refused_unread(bench: Bench) -> None:
    client = await announcing(bench, 64 * 2**20 + 1).wait_returned()

    assert (client.refused.status, client.refused.reason) == (413, "too_large")
    assert bench.outcomes == [Outcome.REFUSED]
    assert bench.runtime.admission.statistics().turns.refused == 0


async def test_a_body_that_turns_out_too_large_is_refused(open_bench: OpenBench) -> None:
    bench = open_bench(client=ClientSettings(body_bytes=1000))

    client = bench.request("POST", "/v1/responses")
    client.send_body_nowait(b"x" * 1001)
    await client.wait_returned()

    assert (client.refused.status, client.refused.reason) == (413, "too_large")
    assert bench.at_rest


async def test_an_unannounced_body_is_held_as_it_arrives(open_bench: OpenBench) -> None:
    bench = open_bench(limits=Limits(memory_bytes=10_000))

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


async def test_a_large_body_is_not_taken_in_before_its_turn_is_admitted(bench: Bench) -> None:
    bench.upstream.will(streaming(created(), 0.5, completed()), answer())

    await bench.post(thread="holder").wait_for("response.created")
    second = bench.request("POST", "/v1/responses", headers=SAME_LANE)
    await second.send_body(post(input="x" * 100_000), more=True)
    await second.send_body(b"", more=False)
    await wait_all_tasks_blocked()
    held = bench.held_bytes
    await second.wait_returned()

    assert held == len(post())
    assert second.types[-1] == "response.completed"
    assert len(bench.upstream.sent[1].body) > 100_000


async def test_a_hang_up_after_an_unadmitted_body_is_noticed_within_a_second(bench: Bench) -> None:
    bench.upstream.will(streaming(created(), trio.Event()))

    await bench.post(thread="holder").wait_for("response.created")
    second = bench.request("POST", "/v1/responses", headers=SAME_LANE)
    await second.send_body(b"x" * 100_000, more=True)
    await second.hang_up()
    await second.wait_returned()

    assert trio.current_time() <= 1.0
    assert bench.turns == 1


# Content.


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
    ids=["broken", "not an object", "wrong type", "corrupt", "unknown coding", "bomb"],
)
@pytest.mark.parametrize("codex", [False, True])
async def test_a_body_that_cannot_be_used_is_refused_for_good(
    body: bytes, coding: str, status: int, reason: str, codex: bool, open_bench: OpenBench
) -> None:
    """Field case B77; Codex is told in the one form whose message it shows."""
    bench = open_bench(client=ClientSettings(body_bytes=5000))

    headers = [("content-encoding", coding)] if coding else []
    client = bench.post(body, headers=[*headers, *(CODEX if codex else [])])
    refused = (await client.wait_returned()).refused

    code = "invalid_prompt" if codex else reason
    assert (refused.status, refused.code) == (400 if codex else status, code)
    assert (refused.reason, refused.retry_after) == (reason, None)
    assert bench.outcomes == [Outcome.REFUSED]
    assert bench.at_rest
    assert bench.upstream.sent == []
