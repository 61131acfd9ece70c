"""Every no that can be forced at the door, on both transports: nothing of it goes upstream."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lifecycle import Limits, WorkflowLimits
from proxy.config.settings import ClientSettings
from proxy.journal.record import Transport
from proxy.keys import KeyRing
from tests.testkit.asgi import Client
from tests.testkit.events import create, created, post
from tests.testkit.runtime import Bench, OpenBench, Pairs
from tests.testkit.upstream import Script, answer, streaming

Named = tuple[str, str, str | None]
"""Thread, session and parent."""
LATE: Named = ("late", "root", "root")
OTHER: Named = ("other", "other", None)
SIBLING: Named = ("sibling", "root", "root")
LARGE = "x" * 3000


def frame(**more: Any) -> str:
    return create(thread="late", session="root", parent="root", **more)


def held() -> Script:
    return streaming(created(), trio.Event())


@dataclass(frozen=True, kw_only=True)
class Case:
    """`before` are turns that come first, `script` is how the upstream answers each of them."""

    limits: Limits = field(default_factory=Limits)
    client: ClientSettings = field(default_factory=ClientSettings)
    before: tuple[Named, ...] = ()
    script: Callable[[], Script] = held
    headers: Pairs = ()
    body: bytes = post()
    frame: str = frame()
    draining: bool = False
    keys: bool = False


def budget(**numbers: Any) -> Limits:
    return Limits(workflow=WorkflowLimits(**numbers))


CASES = {
    "foreign_origin": Case(headers=[("origin", "https://evil.example")]),
    "unauthorized": Case(keys=True),
    "no_credential": Case(headers=[("authorization", "Bearer tl_x")]),
    "draining": Case(draining=True),
    "turns_at_capacity": Case(limits=Limits(turns=1), before=(OTHER,)),
    "lanes_at_capacity": Case(limits=Limits(lanes=1, lanes_kept=0), before=(OTHER,)),
    "lane_busy": Case(before=(LATE,)),
    "memory_at_capacity": Case(
        limits=Limits(memory_bytes=2500), body=post(x=LARGE), frame=frame(x=LARGE)
    ),
    "too_large": Case(
        client=ClientSettings(body_bytes=2500), body=post(x=LARGE), frame=frame(x=LARGE)
    ),
    "bad_request": Case(body=b"[", frame="["),
    "workflow_concurrency_exhausted": Case(limits=budget(turns=2), before=(SIBLING,)),
    "workflow_children_exhausted": Case(
        limits=budget(children=1), before=(SIBLING,), script=answer
    ),
    "workflow_sends_exhausted": Case(limits=budget(sends=1), before=(SIBLING,), script=answer),
    "workflow_tracking_exhausted": Case(limits=budget(roots=1), before=(OTHER,)),
}
FINAL = {
    "too_large",
    "bad_request",
    "workflow_children_exhausted",
    "workflow_sends_exhausted",
}


async def prepared(case: Case, open_bench: OpenBench, ring: KeyRing) -> Bench:
    scripts = (case.script() for _ in case.before)
    if case.keys:
        ring.add("one")
    bench = open_bench(*scripts, limits=case.limits, client=case.client, keys=ring)
    for thread, session, parent in case.before:
        bench.post(thread=thread, session=session, parent=parent)
        await wait_all_tasks_blocked()
    if case.draining:
        bench.runtime.admission.close_door(10.0)
    return bench


async def ask(bench: Bench, transport: Transport, case: Case, codex: bool) -> Client:
    headers = [*case.headers, *([("x-codex-window-id", "w")] if codex else [])]
    if transport is Transport.HTTP:
        thread, session, parent = LATE
        client: Client = bench.post(
            case.body, thread=thread, session=session, parent=parent, headers=headers
        )
    else:
        client = socket = bench.socket(headers=headers)
        await socket.say(case.frame)
    await client.wait_until(lambda: client.complete or "error" in client.types)
    return client


@pytest.mark.parametrize("codex", [False, True], ids=["plain", "codex"])
@pytest.mark.parametrize("reason", CASES)
async def test_a_refusal_is_whole_and_local(
    reason: str, transport: Transport, codex: bool, open_bench: OpenBench, ring: KeyRing
) -> None:
    case = CASES[reason]
    bench = await prepared(case, open_bench, ring)
    books = bench.runtime.admission.statistics()
    told = (await ask(bench, transport, case, codex)).refused
    after = bench.runtime.admission.statistics()

    assert told.reason == reason
    assert "turnlane refused this locally and asked no provider" in told.message
    assert (told.code == "invalid_prompt") == (codex and reason in FINAL)
    if told.status == 503 or (told.status == 429 and reason not in FINAL):
        assert int(told.retry_after or 0) >= 1
    else:
        assert told.retry_after is None
    assert len(bench.upstream.sent) == len(case.before)
    assert [record.refusal for record in bench.records if record.refusal] == [reason]
    assert (after.lanes.active, after.turns.active) == (books.lanes.active, books.turns.active)
    assert after.memory.held_bytes == books.memory.held_bytes


@pytest.mark.parametrize("reason", [name for name in CASES if name.startswith("workflow_")])
async def test_the_record_of_a_refused_worker_names_the_root_that_would_have_paid(
    reason: str, transport: Transport, open_bench: OpenBench, ring: KeyRing
) -> None:
    bench = await prepared(CASES[reason], open_bench, ring)
    await ask(bench, transport, CASES[reason], codex=False)
    (record,) = [record for record in bench.records if record.refusal]

    assert record.worker
    assert record.root is not None
    if reason != "workflow_tracking_exhausted":
        assert record.root in bench.runtime.admission.workflows.each(trio.current_time())
