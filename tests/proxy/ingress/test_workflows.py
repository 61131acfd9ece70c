"""Workflows at the door: a fan-out cannot starve its conversation, and a no says why."""

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from lifecycle import Limits, WorkflowLimits
from proxy.ingress.body import EARLY_BYTES
from proxy.journal.record import Outcome, Transport
from tests.testkit.asgi import Client
from tests.testkit.events import completed, create, created, delta
from tests.testkit.runtime import TRANSPORTS, Bench, Pairs
from tests.testkit.upstream import Script, answer, failing, streaming

both = pytest.mark.parametrize("transport", TRANSPORTS)
CODEX = ("x-codex-window-id", "w")
CHILDREN = 12


async def turn(
    bench: Bench,
    transport: Transport,
    thread: str,
    *,
    parent: str | None = None,
    session: str = "root",
    subagent: str | None = None,
    headers: Pairs = (),
) -> Client:
    """One turn on a connection of its own; returns when nothing more happens by itself."""
    client: Client
    kind = {} if subagent is None else {"x-openai-subagent": subagent}
    if transport is Transport.HTTP:
        named = [*headers, *kind.items()]
        client = bench.post(thread=thread, session=session, parent=parent, headers=named)
    else:
        client = socket = bench.socket(headers=headers)
        await socket.say(create(thread=thread, session=session, parent=parent, metadata=kind))
    await wait_all_tasks_blocked()
    return client


def child(number: int) -> str:
    return f"child {number}"


async def fan_out(bench: Bench, transport: Transport, count: int = CHILDREN) -> list[Client]:
    return [await turn(bench, transport, child(n), parent="root") for n in range(count)]


def runs(client: Client) -> bool:
    return "response.created" in client.types


def refused(clients: Sequence[Client]) -> list[Client]:
    return [client for client in clients if not runs(client)]


def gated(count: int) -> tuple[list[Script], list[trio.Event]]:
    """Scripts that stream a little, and wait for their gates before they end."""
    gates = [trio.Event() for _ in range(count)]
    return [streaming(created(), delta(), gate, completed()) for gate in gates], gates


def root_of(bench: Bench) -> str:
    (root,) = bench.runtime.admission.workflows.each(trio.current_time())
    return root


@both
async def test_seven_of_twelve_children_run_and_their_parent_is_admitted_at_once(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scripts, _ = gated(8)
    bench = Bench(nursery, *scripts)
    first = await fan_out(bench, transport, 6)
    parent = await turn(bench, transport, "root")
    rest = [await turn(bench, transport, child(n), parent="root") for n in range(6, CHILDREN)]

    assert runs(parent)
    assert [runs(client) for client in first + rest] == [True] * 7 + [False] * 5
    for client in refused(rest):
        no = client.refused
        assert (no.status, no.code, no.retry_after) == (429, "queue_capacity_exceeded", "5")
        assert no.reason == "workflow_concurrency_exhausted"
        assert "may run 8 turns at once, 1 of them kept" in no.message
    assert len(bench.upstream.sent) == 8
    assert len({record.root for record in bench.records}) == 1
    assert bench.records[0].root == root_of(bench)
    assert all(record.worker and record.attempts == 0 for record in bench.records)


@both
async def test_a_place_is_free_when_a_stream_ends_and_not_before(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scripts, gates = gated(8)
    bench = Bench(nursery, *scripts)
    running = await fan_out(bench, transport, 7)
    assert all(map(runs, running))
    early = await turn(bench, transport, child(7), parent="root")
    gates[3].set()
    await running[3].wait_for("response.completed")
    late = await turn(bench, transport, child(7), parent="root")

    assert not runs(early)
    assert runs(late)


@both
async def test_a_record_names_the_root_that_paid_whatever_becomes_known_of_its_parent(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    gate = trio.Event()
    bench = Bench(nursery, streaming(created(), gate, completed()), answer())

    early = await turn(bench, transport, "child", parent="parent", session="first")
    paid = root_of(bench)
    late = await turn(bench, transport, "parent", parent="other", session="second")
    gate.set()
    await early.wait_for("response.completed")

    assert "response.completed" in late.types
    assert [record.root == paid for record in bench.records] == [False, True]


@both
async def test_a_grandchild_pays_into_the_root_of_its_parent(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scripts, _ = gated(7)
    bench = Bench(nursery, *scripts)
    await fan_out(bench, transport, 1)
    named = [
        await turn(bench, transport, f"grandchild {n}", parent=child(0), session=child(0))
        for n in range(6)
    ]
    one_more = await turn(bench, transport, "late", parent=child(0), session=child(0))

    assert all(map(runs, named))
    assert one_more.refused.reason == "workflow_concurrency_exhausted"
    assert {record.root for record in bench.records} == {root_of(bench)}


@both
async def test_a_guardian_of_the_conversation_is_admitted_while_its_workers_are_busy(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scripts, _ = gated(8)
    bench = Bench(nursery, *scripts)
    await fan_out(bench, transport, 7)
    guardian = await turn(bench, transport, "guardian", parent="root", subagent="guardian")
    reviewer = await turn(bench, transport, "reviewer", parent="root", subagent="review")

    assert runs(guardian)
    assert reviewer.refused.reason == "workflow_concurrency_exhausted"


FEW = Limits(workflow=WorkflowLimits(children=2, sends=4, sends_kept=2))


@both
@pytest.mark.parametrize("codex", [False, True])
async def test_one_child_too_many_is_told_that_it_is_not_a_matter_of_waiting(
    transport: Transport, codex: bool, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, *(answer() for _ in range(3)), limits=FEW)
    headers = [CODEX] if codex else []
    await fan_out(bench, transport, 2)
    third = await turn(bench, transport, child(2), parent="root", headers=headers)
    known = await turn(bench, transport, child(0), parent="root")

    no = third.refused
    assert no.reason == "workflow_children_exhausted"
    assert "2 different sub-agents in 10 min" in no.message
    assert no.retry_after is None
    expected = (400, "invalid_prompt") if codex else (429, "workflow_budget_exhausted")
    assert (no.status, no.code) == expected
    assert runs(known)
    assert len(bench.upstream.sent) == 3


async def test_codex_meets_the_65th_child_with_our_words(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, *(answer() for _ in range(64)))
    for number in range(64):
        assert runs(
            await turn(bench, Transport.HTTP, child(number), parent="root", headers=[CODEX])
        )
    last = await turn(bench, Transport.HTTP, child(64), parent="root", headers=[CODEX])

    assert (last.refused.status, last.refused.code) == (400, "invalid_prompt")
    assert "64 different sub-agents" in last.refused.message
    assert "asked no provider" in last.refused.message


@both
async def test_sends_are_a_budget_that_comes_back_with_the_window(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, *(answer() for _ in range(7)), limits=FEW)
    for _ in range(4):
        assert runs(await turn(bench, transport, child(0), parent="root"))
    spent = await turn(bench, transport, child(0), parent="root")
    kept = [await turn(bench, transport, "root") for _ in range(2)]
    all_spent = await turn(bench, transport, "root")
    await trio.sleep(540)
    soon = await turn(bench, transport, child(0), parent="root")
    await trio.sleep(60)
    back = await turn(bench, transport, child(0), parent="root")

    assert spent.refused.code == "workflow_budget_exhausted"
    assert spent.refused.retry_after is None
    assert all(map(runs, kept))
    assert all_spent.refused.reason == "workflow_sends_exhausted"
    assert soon.refused.retry_after is not None
    assert 1 <= int(soon.refused.retry_after) <= 60
    assert runs(back)


async def test_a_retry_is_a_send_and_is_not_made_beyond_the_budget(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    limits = Limits(workflow=WorkflowLimits(sends=3))
    bench = Bench(nursery, failing(), failing(), failing(), limits=limits)
    for _ in range(2):
        await turn(bench, Transport.HTTP, child(0), parent="root")
    spent = await turn(bench, Transport.HTTP, child(0), parent="root")

    assert [record.attempts for record in bench.records] == [2, 1, 0]
    assert [record.status for record in bench.records] == [None, None, None]
    assert spent.refused.reason == "workflow_sends_exhausted"


async def test_a_successor_on_its_socket_is_refused_with_the_advice_of_its_window(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scripts, _ = gated(1)
    limits = Limits(workflow=WorkflowLimits(sends=1, window_seconds=60))
    bench = Bench(nursery, *scripts, limits=limits)
    socket = bench.socket(headers=[CODEX])
    frame = create(thread=child(0), session="root", parent="root")
    await socket.say(frame)
    await socket.wait_for("response.output_text.delta")
    await socket.say(frame)
    await socket.wait_for("error")

    no = socket.refused
    assert (no.status, no.code) == (429, "workflow_budget_exhausted")
    assert no.retry_after is not None
    assert bench.turns == 1
    assert bench.records[0].refusal == "workflow_sends_exhausted"
    assert bench.records[0].root == root_of(bench)
    assert bench.records[0].lane is not None


async def test_a_client_is_codex_also_when_only_its_frame_says_so(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer(), answer(), limits=FEW)
    await fan_out(bench, Transport.HTTP, 2)
    socket = bench.socket()
    marked = {"x-codex-turn-metadata": "{}"}
    await socket.say(create(thread=child(2), session="root", parent="root", metadata=marked))
    await socket.wait_for("error")

    assert (socket.refused.status, socket.refused.code) == (400, "invalid_prompt")


async def test_a_worker_may_wait_in_line_and_its_client_hears_that_it_is_alive(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scripts, gates = gated(8)
    limits = Limits(workflow=WorkflowLimits(hold_seconds=90))
    bench = Bench(nursery, *scripts, limits=limits)
    await fan_out(bench, Transport.WEBSOCKET, 7)
    waiting = await turn(bench, Transport.WEBSOCKET, child(7), parent="root")
    await trio.sleep(65)
    heard = list(waiting.types)
    gates[0].set()
    await waiting.wait_for("response.created")
    late = await turn(bench, Transport.WEBSOCKET, child(8), parent="root")
    await late.wait_for("error")

    assert heard == ["keepalive"] * 3
    assert late.refused.reason == "workflow_concurrency_exhausted"
    assert late.types == ["keepalive"] * 4 + ["error"]


async def test_a_large_body_does_not_hide_that_its_client_left_the_line(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scripts, _ = gated(7)
    bench = Bench(nursery, *scripts, limits=Limits(workflow=WorkflowLimits(hold_seconds=90)))
    await fan_out(bench, Transport.HTTP, 7)
    memory = bench.runtime.admission.memory
    before = memory.statistics().held_bytes
    size = 20 * EARLY_BYTES
    named = {"thread-id": child(7), "session-id": "root", "x-codex-parent-thread-id": "root"}
    headers = [*named.items(), ("content-length", str(size))]
    gone = bench.request("POST", "/v1/responses", headers=headers)
    for _ in range(18):
        await gone.send_body(b"x" * EARLY_BYTES, more=True)
    await wait_all_tasks_blocked()
    held = memory.statistics().held_bytes - before
    with trio.fail_after(1):
        await gone.hang_up()
        await gone.wait_returned()

    assert held == size
    assert bench.outcomes == [Outcome.CLIENT_GONE]
    assert memory.statistics().held_bytes == before


@both
async def test_who_waits_in_line_leaves_it_with_its_client(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scripts, gates = gated(8)
    bench = Bench(nursery, *scripts, limits=Limits(workflow=WorkflowLimits(hold_seconds=90)))
    await fan_out(bench, transport, 7)
    gone = await turn(bench, transport, child(7), parent="root")
    await gone.hang_up()
    await wait_all_tasks_blocked()
    gates[0].set()
    await wait_all_tasks_blocked()

    assert bench.outcomes == [Outcome.CLIENT_GONE, Outcome.COMPLETED]
    assert bench.turns == 6
    assert len(bench.upstream.sent) == 7
