"""Workflow budgets: what clients on both transports see of the rules that tests/lifecycle shows."""

from collections.abc import Sequence

import trio
from trio.testing import wait_all_tasks_blocked

from lifecycle import Limits, WorkflowLimits
from proxy.ingress.body import EARLY_BYTES
from proxy.journal.record import Outcome, Transport
from tests.testkit.asgi import Client
from tests.testkit.events import completed, create, created, delta
from tests.testkit.runtime import Bench, OpenBench
from tests.testkit.upstream import Script, answer, failing, streaming

CODEX = ("x-codex-window-id", "w")
CHILDREN = 12
PATIENT = Limits(workflow=WorkflowLimits(hold_seconds=90))


async def turn(
    bench: Bench,
    transport: Transport,
    thread: str,
    parent: str | None = "root",
    session: str = "root",
) -> Client:
    """Begin a turn; return when nothing more happens by itself."""
    client = await bench.turn(transport, thread=thread, parent=parent, session=session)
    await wait_all_tasks_blocked()
    return client


async def fan_out(bench: Bench, transport: Transport, count: int) -> list[Client]:
    return [await turn(bench, transport, f"child {number}") for number in range(count)]


def runs(client: Client) -> bool:
    return "response.created" in client.types


def gated(count: int) -> tuple[Sequence[Script], Sequence[trio.Event]]:
    """Scripts that stream a little, and wait for their gates before they end."""
    gates = [trio.Event() for _ in range(count)]
    return [streaming(created(), delta(), gate, completed()) for gate in gates], gates


def root_of(bench: Bench) -> str:
    (root,) = bench.runtime.admission.workflows.each(trio.current_time())
    return root


async def test_seven_of_twelve_children_run_and_their_parent_is_admitted_at_once(
    transport: Transport, bench: Bench
) -> None:
    scripts, gates = gated(9)
    bench.upstream.will(*scripts)
    children = await fan_out(bench, transport, CHILDREN)
    parent = await turn(bench, transport, "root", parent=None)
    sent = len(bench.upstream.sent)
    gates[3].set()
    await children[3].wait_for("response.completed")
    late = await turn(bench, transport, "child 7")

    assert runs(parent)
    assert [runs(client) for client in children] == [True] * 7 + [False] * 5
    for client in children[7:]:
        no = client.refused
        assert (no.status, no.code, no.retry_after) == (429, "queue_capacity_exceeded", "5")
        assert no.reason == "workflow_concurrency_exhausted"
    assert sent == 8
    assert {record.root for record in bench.records} == {root_of(bench)}
    assert all(record.worker and record.attempts == 0 for record in bench.records[:5])
    assert runs(late)


async def test_a_record_names_the_root_that_paid_whatever_is_learnt_later_of_its_parent(
    transport: Transport, bench: Bench
) -> None:
    gate = trio.Event()
    bench.upstream.will(streaming(created(), gate, completed()), answer())

    early = await turn(bench, transport, "child", parent="parent", session="first")
    paid = root_of(bench)
    late = await turn(bench, transport, "parent", parent="other", session="second")
    gate.set()
    await early.wait_for("response.completed")

    assert "response.completed" in late.types
    assert [record.root == paid for record in bench.records] == [False, True]


async def test_codex_is_told_of_the_65th_child_in_our_words(bench: Bench) -> None:
    bench.upstream.will(*(answer() for _ in range(64)))
    await fan_out(bench, Transport.HTTP, 64)
    last = await bench.post(
        thread="last", parent="root", session="root", headers=[CODEX]
    ).wait_returned()

    assert len(bench.upstream.sent) == 64
    assert (last.refused.status, last.refused.code) == (400, "invalid_prompt")
    assert "64 different sub-agents" in last.refused.message
    assert "asked no provider" in last.refused.message


async def test_a_retry_is_a_send_and_is_not_made_beyond_the_budget(open_bench: OpenBench) -> None:
    limits = Limits(workflow=WorkflowLimits(sends=3))
    bench = open_bench(failing(), failing(), failing(), limits=limits)
    for _ in range(3):
        spent = await turn(bench, Transport.HTTP, "child")

    assert [record.attempts for record in bench.records] == [2, 1, 0]
    assert [record.status for record in bench.records] == [None, None, None]
    assert spent.refused.reason == "workflow_sends_exhausted"


async def test_a_successor_on_its_socket_is_refused_with_the_advice_of_its_window(
    open_bench: OpenBench,
) -> None:
    scripts, _ = gated(1)
    limits = Limits(workflow=WorkflowLimits(sends=1, window_seconds=60))
    bench = open_bench(*scripts, limits=limits)
    socket = bench.socket(headers=[CODEX])
    frame = create(thread="child", session="root", parent="root")
    await socket.say_until("response.output_text.delta", frame)
    await socket.say_until("error", frame)

    no = socket.refused
    assert (no.status, no.code) == (429, "workflow_budget_exhausted")
    assert no.retry_after is not None
    assert 1 <= int(no.retry_after) <= 60
    assert bench.turns == 1
    assert bench.records[0].refusal == "workflow_sends_exhausted"
    assert bench.records[0].root == root_of(bench)
    assert bench.records[0].lane is not None


async def test_a_client_is_codex_even_if_only_its_frame_says_so(open_bench: OpenBench) -> None:
    bench = open_bench(answer(), limits=Limits(workflow=WorkflowLimits(children=1)))
    await fan_out(bench, Transport.HTTP, 1)
    socket = bench.socket()
    marked = {"x-codex-turn-metadata": "{}"}
    frame = create(thread="child 2", session="root", parent="root", metadata=marked)
    await socket.say_until("error", frame)

    assert (socket.refused.status, socket.refused.code) == (400, "invalid_prompt")


# Waiting in line.


async def test_a_worker_that_waits_in_line_hears_that_it_is_alive(open_bench: OpenBench) -> None:
    scripts, gates = gated(8)
    bench = open_bench(*scripts, limits=PATIENT)
    await fan_out(bench, Transport.WEBSOCKET, 7)
    waiting = await turn(bench, Transport.WEBSOCKET, "child 7")
    await trio.sleep(65)
    heard = list(waiting.types)
    gates[0].set()
    await waiting.wait_for("response.created")
    late = await turn(bench, Transport.WEBSOCKET, "child 8")
    await late.wait_for("error")

    assert heard == ["keepalive"] * 3
    assert late.refused.reason == "workflow_concurrency_exhausted"
    assert late.types == ["keepalive"] * 4 + ["error"]


async def test_a_client_that_leaves_the_line_frees_its_place(
    transport: Transport, open_bench: OpenBench
) -> None:
    scripts, gates = gated(8)
    bench = open_bench(*scripts, limits=PATIENT)
    await fan_out(bench, transport, 7)
    gone = await turn(bench, transport, "child 7")
    await gone.hang_up()
    await wait_all_tasks_blocked()
    gates[0].set()
    await wait_all_tasks_blocked()

    assert bench.outcomes == [Outcome.CLIENT_GONE, Outcome.COMPLETED]
    assert bench.turns == 6
    assert len(bench.upstream.sent) == 7


async def test_a_large_body_does_not_hide_that_its_client_left_the_line(
    open_bench: OpenBench,
) -> None:
    scripts, _ = gated(7)
    bench = open_bench(*scripts, limits=PATIENT)
    await fan_out(bench, Transport.HTTP, 7)
    before = bench.held_bytes
    size = 20 * EARLY_BYTES
    named = {"thread-id": "child 7", "session-id": "root", "x-codex-parent-thread-id": "root"}
    headers = [*named.items(), ("content-length", str(size))]
    gone = bench.request("POST", "/v1/responses", headers=headers)
    for _ in range(18):
        await gone.send_body(b"x" * EARLY_BYTES, more=True)
    await wait_all_tasks_blocked()
    held = bench.held_bytes - before
    with trio.fail_after(1):
        await gone.hang_up()
        await gone.wait_returned()

    assert held == size
    assert bench.outcomes == [Outcome.CLIENT_GONE]
    assert bench.held_bytes == before
