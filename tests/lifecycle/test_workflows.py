"""Whose budget pays, and which roots are remembered: fan-outs as a client asks for them."""

import pytest

from lifecycle import (
    AdmissionReason,
    Ask,
    Granted,
    LeaseId,
    Ledger,
    Limits,
    Refusal,
    Waiting,
    WorkflowLimits,
    WorkflowStatistics,
)
from tests.lifecycle.asks import ask, child, root, thread, top

NO_TURN = Refusal(AdmissionReason.WORKFLOW_CONCURRENCY_EXHAUSTED)
NO_ROOT = Refusal(AdmissionReason.WORKFLOW_TRACKING_EXHAUSTED)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(Limits())


def small(**numbers: int) -> Ledger:
    return Ledger(Limits(workflow=WorkflowLimits(**numbers)))


def granted(ledger: Ledger, *asks: Ask, now: float = 0) -> list[LeaseId]:
    answers = [ledger.ask(ask, now) for ask in asks]
    leases = [answer.lease_id for answer in answers if isinstance(answer, Granted)]
    assert len(leases) == len(asks), answers
    return leases


def waiting(answer: object) -> Waiting:
    assert isinstance(answer, Waiting)
    return answer


def run(ledger: Ledger, *asks: Ask, now: float = 0, sends: int = 0) -> None:
    """Whole turns, one after the other, in one moment."""
    for each in asks:
        (lease_id,) = granted(ledger, each, now=now)
        assert all(ledger.sent(lease_id, now) for _ in range(sends))
        ledger.give_back(lease_id)


def books(ledger: Ledger, number: int = 0, now: float = 0) -> WorkflowStatistics:
    return ledger.workflows.each(now)[root(number)]


def exhaust(ledger: Ledger, number: int, now: float = 0) -> None:
    """Use up what a root's workers may send."""
    run(ledger, child(1000, parent=number), now=now, sends=256)


# A fan-out.


def test_of_twelve_children_seven_run_and_the_parent_is_served_in_the_middle(
    ledger: Ledger,
) -> None:
    (parent,) = granted(ledger, top(0, in_lane=0))
    ledger.give_back(parent)
    fan_out = [child(n, parent=0, session=0, in_lane=n) for n in range(1, 13)]
    answers = [ledger.ask(each, 0) for each in fan_out]
    running = [answer.lease_id for answer in answers if isinstance(answer, Granted)]

    assert (len(running), answers[7:]) == (7, [NO_TURN] * 5)
    granted(ledger, top(0, in_lane=0))
    assert (books(ledger).active, books(ledger).workers, books(ledger).refused) == (8, 7, 5)
    assert ledger.ask(fan_out[7], 1) == NO_TURN
    ledger.give_back(running[3])
    granted(ledger, fan_out[7])
    assert ledger.ask(fan_out[8], 1) == NO_TURN


def test_a_guardian_that_its_user_waits_for_has_the_turn_kept_for_the_conversation(
    ledger: Ledger,
) -> None:
    granted(ledger, *(child(n, parent=0, session=0) for n in range(7)))
    guardian = child(99, parent=0, session=0, worker=False, counted=False)

    assert ledger.ask(child(8, parent=0, session=0), 0) == NO_TURN
    granted(ledger, guardian)
    assert (books(ledger).active, books(ledger).children) == (8, 7)


def test_a_turn_without_a_root_pays_nothing_and_sends_what_it_likes(ledger: Ledger) -> None:
    leases = granted(ledger, *(ask(worker=True) for _ in range(20)))

    assert all(ledger.sent(leases[0], 0) for _ in range(1000))
    assert ledger.workflows.each(0) == {}


# Whose budget pays.


def test_a_thread_alone_its_child_and_its_grandchild_pay_from_one_budget(ledger: Ledger) -> None:
    granted(ledger, top(0), child(1, parent=0), child(2, parent=1), child(3, parent=2))

    assert ledger.workflows.each(0).keys() == {root(0)}
    assert (books(ledger).active, books(ledger).workers, books(ledger).children) == (4, 3, 3)


def test_the_root_of_the_parent_comes_before_the_session(ledger: Ledger) -> None:
    run(ledger, child(1, parent=0))

    assert ledger.workflows.root(child(2, parent=1, session=7)) == root(0)
    assert ledger.workflows.root(child(2, parent=5, session=7)) == root(7)
    assert ledger.workflows.root(child(2, parent=5)) == root(5)


def test_a_parent_without_a_thread_is_the_root_itself(ledger: Ledger) -> None:
    run(ledger, child(1, parent=0))
    lone = Ask(principal=ask().principal, root=root(1), parent=thread(1))
    run(ledger, lone)

    assert ledger.workflows.root(lone) == root(1)
    assert books(ledger, 1).children == 0


# Succession.


def test_a_worker_that_replaces_itself_under_a_full_root_keeps_its_turn(ledger: Ledger) -> None:
    workers = granted(ledger, *(child(n, parent=0, in_lane=n) for n in range(7)))
    later = waiting(ledger.succeed(workers[0], child(0, parent=0, in_lane=0), 0))

    assert ledger.ask(child(8, parent=0), 0) == NO_TURN
    assert ledger.give_back(workers[0]) is later
    assert ledger.ask(child(8, parent=0), 0) == NO_TURN
    assert later.lease_id is not None
    ledger.give_back(later.lease_id)
    granted(ledger, child(8, parent=0))


# The order of the reasons.


def test_the_process_is_asked_before_the_root_and_the_root_before_memory() -> None:
    ledger = Ledger(Limits(turns=3, lanes=1, lanes_kept=0, workflow=WorkflowLimits(turns=2)))
    first, _ = granted(ledger, child(1, parent=0, in_lane=1), ask())
    wish = Ask(principal=ask().principal, root=root(0), worker=True, body_bytes=2**40)

    assert ledger.ask(child(2, parent=0, in_lane=2), 0) == Refusal(
        AdmissionReason.LANES_AT_CAPACITY
    )
    assert ledger.ask(wish, 0) == NO_TURN
    granted(ledger, ask())
    assert ledger.ask(wish, 0) == Refusal(AdmissionReason.TURNS_AT_CAPACITY)
    ledger.give_back(first)
    assert ledger.ask(wish, 0) == Refusal(AdmissionReason.MEMORY_AT_CAPACITY)
    ledger.draining = True
    assert ledger.ask(wish, 0) == Refusal(AdmissionReason.DRAINING)
    assert (books(ledger).active, books(ledger).refused) == (0, 1)
    assert ledger.workflows.statistics().refused == 1


# Tracking.


def test_a_root_at_its_ceiling_is_not_forgotten_for_600_fresh_ones(ledger: Ledger) -> None:
    exhaust(ledger, 0)
    for number in range(1, 601):
        run(ledger, top(number), now=1)
    refused = ledger.ask(child(1, parent=0), 2)

    assert refused == Refusal(AdmissionReason.WORKFLOW_SENDS_EXHAUSTED, 598)
    now = ledger.workflows.statistics()
    assert (now.tracked, now.active, now.limit, now.refused) == (512, 0, 512, 1)
    run(ledger, child(1, parent=0), now=600)


def test_a_root_that_has_used_up_its_children_is_not_forgotten_either() -> None:
    ledger = small(children=2, roots=2)
    run(ledger, child(1, parent=0), child(2, parent=0), top(1), top(2))

    assert ledger.workflows.each(0).keys() == {root(0), root(2)}


def test_a_cleared_root_makes_room_for_the_one_that_was_refused_before() -> None:
    ledger = small(roots=2, sends=256)
    for number in (0, 1):
        exhaust(ledger, number)
    assert ledger.ask(top(2), 1) == NO_ROOT
    ledger.workflows.clear(root(0))
    granted(ledger, top(2), now=1)

    assert ledger.workflows.each(1).keys() == {root(1), root(2)}


def test_when_none_can_be_forgotten_the_new_root_is_refused_and_leaves_no_trace() -> None:
    ledger = small(roots=2, sends=256)
    exhaust(ledger, 0)
    (running,) = granted(ledger, top(1))

    assert ledger.ask(top(2), 0) == NO_ROOT
    assert ledger.ask(child(5, parent=2), 0) == NO_ROOT
    assert ledger.workflows.each(0).keys() == {root(0), root(1)}
    assert ledger.workflows.statistics().refused == 2
    granted(ledger, top(1), ask())
    assert ledger.succeed(running, top(2), 0) == NO_ROOT
    granted(ledger, top(2), now=600)
    assert ledger.workflows.each(600).keys() == {root(1), root(2)}
