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
    Workflows,
    WorkflowStatistics,
)
from tests.lifecycle.asks import ask, child, root, thread, top

NO_TURN = Refusal(AdmissionReason.WORKFLOW_CONCURRENCY_EXHAUSTED)
NO_ROOT = Refusal(AdmissionReason.WORKFLOW_TRACKING_EXHAUSTED)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(Limits())


@pytest.fixture
def ledger_of_two() -> Ledger:
    return small(roots=2)


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


def test_a_guardian_of_a_child_waits_for_a_worker_s_turn_and_is_no_child(ledger: Ledger) -> None:
    running = granted(ledger, *(child(n, parent=0, session=0) for n in range(7)))
    guardian = child(99, parent=3, session=0, counted=False)

    assert ledger.ask(guardian, 0) == NO_TURN
    ledger.give_back(running[0])
    granted(ledger, guardian)
    assert (books(ledger).workers, books(ledger).children) == (7, 7)


def test_64_children_one_after_the_other_and_the_65th_is_refused(ledger: Ledger) -> None:
    for number in range(1, 65):
        run(ledger, child(number, parent=0, session=0), now=number)

    refused = ledger.ask(child(65, parent=0, session=0), 70)
    assert refused == Refusal(AdmissionReason.WORKFLOW_CHILDREN_EXHAUSTED, 530)
    run(ledger, child(64, parent=0, session=0), top(0), child(1, parent=0, session=0), now=70)
    run(ledger, child(65, parent=0, session=0), now=600)


def test_one_send_every_20_seconds_is_never_refused_for_a_hundred_minutes(ledger: Ledger) -> None:
    for number in range(300):
        run(ledger, child(1, parent=0, session=0), now=20 * number, sends=1)

    assert books(ledger, now=20 * 299).refused == 0


def test_workers_have_256_sends_in_a_minute_and_the_conversation_256_more(ledger: Ledger) -> None:
    for number in range(256):
        run(ledger, child(number % 7, parent=0, session=0), now=number * 60 / 256, sends=1)
    refused = ledger.ask(child(1, parent=0, session=0), 60)

    assert refused == Refusal(AdmissionReason.WORKFLOW_SENDS_EXHAUSTED, 540)
    for _ in range(256):
        run(ledger, top(0), now=60, sends=1)
    assert ledger.ask(top(0), 61) == Refusal(AdmissionReason.WORKFLOW_SENDS_EXHAUSTED, 539)
    assert isinstance(ledger.ask(child(1, parent=0, session=0), 599), Refusal)
    run(ledger, child(1, parent=0, session=0), top(0), now=600, sends=1)


def test_a_retry_is_charged_like_any_other_send(ledger: Ledger) -> None:
    one, other = granted(ledger, child(1, parent=0), child(2, parent=0))
    sends = [ledger.sent(one, 0) for _ in range(256)]

    assert sends == [True] * 255 + [False]
    assert ledger.sent(other, 0)
    assert books(ledger).worker_sends == 256


def test_a_turn_that_never_sends_has_spent_nothing(ledger: Ledger) -> None:
    run(ledger, *[child(1, parent=0)] * 1000)

    assert books(ledger).worker_sends == 0


def test_a_turn_without_a_root_pays_nothing_and_sends_what_it_likes(ledger: Ledger) -> None:
    leases = granted(ledger, *(ask(worker=True) for _ in range(20)))

    assert all(ledger.sent(leases[0], 0) for _ in range(1000))
    assert ledger.workflows.each(0) == {}


# Whose budget pays.


def test_a_thread_alone_its_child_and_its_grandchild_pay_from_one_budget(ledger: Ledger) -> None:
    granted(ledger, top(0), child(1, parent=0), child(2, parent=1), child(3, parent=2))

    assert ledger.workflows.each(0).keys() == {root(0)}
    assert (books(ledger).active, books(ledger).workers, books(ledger).children) == (4, 3, 3)


def test_a_grandchild_is_remembered_to_the_root_although_its_parent_is_over(
    ledger: Ledger,
) -> None:
    run(ledger, top(0), child(1, parent=0), child(2, parent=1))

    assert ledger.workflows.root(child(3, parent=2)) == root(0)


def test_the_root_of_the_parent_comes_before_the_session(ledger: Ledger) -> None:
    run(ledger, child(1, parent=0))

    assert ledger.workflows.root(child(2, parent=1, session=7)) == root(0)
    assert ledger.workflows.root(child(2, parent=5, session=7)) == root(7)
    assert ledger.workflows.root(child(2, parent=5)) == root(5)


def test_a_child_joins_the_root_under_which_its_parent_was_last_admitted(ledger: Ledger) -> None:
    run(ledger, child(1, parent=0))
    run(ledger, child(1, parent=5))

    assert ledger.workflows.root(child(2, parent=1)) == root(5)


def test_a_thread_that_names_no_parent_is_its_own_root_wherever_it_was_before(
    ledger: Ledger,
) -> None:
    run(ledger, child(1, parent=0))
    run(ledger, top(1))

    assert ledger.workflows.each(0).keys() == {root(0), root(1)}
    assert ledger.workflows.root(child(2, parent=1)) == root(1)


def test_a_parent_without_a_thread_is_the_root_itself(ledger: Ledger) -> None:
    run(ledger, child(1, parent=0))
    lone = Ask(principal=ask().principal, root=root(1), parent=thread(1))
    run(ledger, lone)

    assert ledger.workflows.root(lone) == root(1)
    assert books(ledger, 1).children == 0


def test_neither_a_refused_nor_a_withdrawn_turn_is_remembered(ledger: Ledger) -> None:
    workers = granted(ledger, *(child(n, parent=0, in_lane=n) for n in range(10, 17)))
    ledger.ask(child(1, parent=0), 0)
    ledger.abandon(waiting(ledger.succeed(workers[0], child(2, parent=0), 0)))

    assert ledger.workflows.root(child(9, parent=1)) == root(1)
    assert ledger.workflows.root(child(9, parent=2)) == root(2)
    assert books(ledger).children == 7


def test_the_threads_remembered_are_bounded_and_the_longest_unseen_is_forgotten() -> None:
    ledger = small(threads=3)
    run(ledger, *(child(n, parent=0) for n in (1, 2, 3, 1, 4)))
    roots = [ledger.workflows.root(child(9, parent=n)) for n in (1, 2, 3, 4)]

    assert roots == [root(0), root(2), root(0), root(0)]


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


def test_who_returns_to_its_own_lane_under_a_full_root_waits_for_it(ledger: Ledger) -> None:
    workers = granted(ledger, *(child(n, parent=0, in_lane=n) for n in range(7)))
    later = waiting(ledger.ask(child(3, parent=0, in_lane=3), 0))

    assert ledger.give_back(workers[3]) is later
    assert books(ledger).workers == 7


def test_a_turn_that_is_replaced_by_one_of_another_root_has_a_turn_there_set_aside(
    ledger: Ledger,
) -> None:
    (first,) = granted(ledger, child(0, parent=0))
    granted(ledger, *(child(n, parent=1) for n in range(1, 7)))
    later = waiting(ledger.succeed(first, child(20, parent=1), 0))

    assert ledger.ask(child(21, parent=1), 0) == NO_TURN
    assert (books(ledger, 0).active, books(ledger, 1).active) == (1, 7)
    assert ledger.give_back(first) is later
    assert (books(ledger, 0).active, books(ledger, 1).active) == (0, 7)


def test_a_replacement_that_a_full_root_refuses_leaves_the_earlier_turn(ledger: Ledger) -> None:
    (first,) = granted(ledger, child(0, parent=0, in_lane=1))
    granted(ledger, *(child(n, parent=1) for n in range(1, 8)))

    assert ledger.succeed(first, child(20, parent=1), 0) == NO_TURN
    assert ledger.give_back(first) is None
    assert (books(ledger, 1).active, books(ledger, 1).children) == (7, 7)


def test_a_third_turn_has_the_turn_that_the_second_had_set_aside(ledger: Ledger) -> None:
    (first,) = granted(ledger, top(5))
    granted(ledger, *(child(n, parent=1) for n in range(1, 7)))
    second = waiting(ledger.succeed(first, child(20, parent=1), 0))
    third = waiting(ledger.succeed(first, child(21, parent=1), 0, instead_of=second))

    assert books(ledger, 1).active == 7
    assert ledger.give_back(first) is third
    assert (books(ledger, 1).active, books(ledger, 1).children) == (7, 7)


def test_a_waiting_turn_has_its_first_send_set_aside() -> None:
    ledger = small(sends=3)
    (first,) = granted(ledger, child(0, parent=0))
    second = waiting(ledger.succeed(first, child(0, parent=0), 0))
    sends = [ledger.sent(first, 0) for _ in range(3)]

    assert sends == [True, True, False]
    ledger.give_back(first)
    assert second.lease_id is not None
    assert ledger.sent(second.lease_id, 0)
    assert not ledger.sent(second.lease_id, 0)


def test_sharing_a_lane_needs_a_turn_of_the_root(ledger: Ledger) -> None:
    workers = granted(ledger, *(child(n, parent=0, in_lane=n) for n in range(7)))
    before = books(ledger)
    later = waiting(ledger.ask(child(3, parent=0, in_lane=3), 0))

    assert ledger.share(later, 0) == NO_TURN
    assert (books(ledger).active, books(ledger).children) == (before.active, before.children)
    ledger.give_back(workers[0])
    again = waiting(ledger.ask(child(3, parent=0, in_lane=3), 0))
    assert isinstance(ledger.share(again, 0), Granted)
    assert books(ledger).workers == 7


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
    run(ledger, child(1, parent=0), child(2, parent=0), *(top(n) for n in range(1, 9)))
    refused = ledger.ask(child(3, parent=0), 1)

    assert refused == Refusal(AdmissionReason.WORKFLOW_CHILDREN_EXHAUSTED, 599)


def test_a_root_that_runs_is_not_forgotten() -> None:
    ledger = small(roots=2)
    granted(ledger, top(0))
    run(ledger, *(top(n) for n in range(1, 9)))

    assert ledger.workflows.each(0).keys() == {root(0), root(8)}
    assert ledger.workflows.statistics().active == 1


def test_a_root_whose_successor_waits_is_not_forgotten() -> None:
    ledger = small(roots=2)
    (first,) = granted(ledger, ask())
    waiting(ledger.succeed(first, top(0), 0))
    run(ledger, *(top(n) for n in range(1, 9)))

    assert ledger.workflows.each(0).keys() == {root(0), root(8)}


def test_the_longest_unseen_root_is_forgotten_first() -> None:
    ledger = small(roots=3)
    run(ledger, *(top(n) for n in (1, 2, 3, 1, 4)))

    assert list(ledger.workflows.each(0)) == [root(3), root(1), root(4)]


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


def test_a_turn_that_ends_makes_room_for_the_root_that_was_refused_before(
    ledger_of_two: Ledger,
) -> None:
    exhaust(ledger_of_two, 0)
    (running,) = granted(ledger_of_two, top(1))
    before = ledger_of_two.ask(top(2), 1)
    ledger_of_two.give_back(running)

    assert before == NO_ROOT
    granted(ledger_of_two, top(2), now=1)
    assert ledger_of_two.workflows.each(1).keys() == {root(0), root(2)}


def test_a_cleared_root_makes_room_for_the_one_that_was_refused_before(
    ledger_of_two: Ledger,
) -> None:
    exhaust(ledger_of_two, 0)
    exhaust(ledger_of_two, 1)
    before = ledger_of_two.ask(top(2), 1)
    ledger_of_two.workflows.clear(root(0))

    assert before == NO_ROOT
    granted(ledger_of_two, top(2), now=1)
    assert ledger_of_two.workflows.each(1).keys() == {root(1), root(2)}


def test_roots_that_were_passed_over_as_spent_are_forgotten_in_their_old_order() -> None:
    ledger = small(roots=3)
    for number in (0, 1):
        exhaust(ledger, number)
    run(ledger, *(top(n) for n in (2, 3)), now=1)
    run(ledger, top(4), now=600)
    run(ledger, top(5), now=600)

    assert list(ledger.workflows.each(600)) == [root(3), root(4), root(5)]


def test_clearing_a_root_lets_it_spend_again_and_keeps_its_turns(ledger: Ledger) -> None:
    exhaust(ledger, 0)
    granted(ledger, top(0))
    assert isinstance(ledger.ask(child(1, parent=0), 1), Refusal)

    assert ledger.workflows.clear(root(0))
    assert not ledger.workflows.clear(root(1))
    granted(ledger, child(1, parent=0))
    assert (books(ledger).active, books(ledger).worker_sends) == (2, 0)


def test_misuse_raises(ledger: Ledger) -> None:
    (lease_id,) = granted(ledger, top(0))
    ledger.give_back(lease_id)

    with pytest.raises(KeyError):
        ledger.sent(lease_id, 0)


def test_the_budgets_of_two_tables_do_not_meet() -> None:
    one, other = Workflows(WorkflowLimits()), Workflows(WorkflowLimits())
    one.reserve(top(0), 0)

    assert (one.statistics().active, other.statistics().active) == (1, 0)
