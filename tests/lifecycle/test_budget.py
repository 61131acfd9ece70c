"""One root's budget by example: what the window counts, when it forgets, and what a place takes."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle import AdmissionReason, Refusal, WorkflowLimits
from lifecycle.budget import Place, Workflow, WorkflowStatistics
from tests.lifecycle.asks import root, thread

SMALL = WorkflowLimits(
    turns=3, kept=1, children=2, sends=4, sends_kept=2, window_seconds=120, slots=12
)
Makes = Callable[..., Place]
NO_TURN = Refusal(AdmissionReason.WORKFLOW_CONCURRENCY_EXHAUSTED)


@dataclass
class Root:
    """A root whose turns come and go."""

    limits: WorkflowLimits = field(default_factory=WorkflowLimits)

    def __post_init__(self) -> None:
        self.workflow = Workflow(self.limits)

    def enter(self, place: Place, now: float = 0) -> Place:
        assert self.workflow.refusal(place, now) is None
        self.workflow.reserve(place, now)
        self.workflow.admit(place)
        return place

    def run(self, place: Place, now: float, sends: int = 1) -> None:
        """A whole turn in one moment."""
        self.enter(place, now)
        assert all(self.workflow.sent(place, now) for _ in range(sends))
        self.workflow.leave(place)

    def books(self, now: float = 0) -> WorkflowStatistics:
        return self.workflow.statistics(now)


def worker(number: int | None = None, inherits: Place | None = None) -> Place:
    """A worker's; with a number, that of a child that counts."""
    child = None if number is None else thread(number)
    return Place(root(0), worker=True, thread=child, child=child, inherits=inherits)


def interactive(inherits: Place | None = None) -> Place:
    return Place(root(0), worker=False, inherits=inherits)


# The window.


@pytest.mark.parametrize(
    ("then", "now", "counts"),
    [
        (0, 0, True),
        (0, 599.9, True),
        (0, 600, False),
        (49.9, 599.9, True),
        (49.9, 600, False),
        (50, 600, True),
        (50, 649.9, True),
        (50, 650, False),
        (7, 100_000, False),
    ],
)
def test_what_was_spent_is_forgotten_when_its_slot_rolls_off(
    then: float, now: float, counts: bool
) -> None:
    family = Root()
    family.run(worker(1), then)
    family.run(interactive(), then)
    spent = family.books(now)

    assert (spent.children, spent.worker_sends, spent.interactive_sends) == (counts,) * 3


def test_a_child_that_waited_for_a_whole_window_counts_while_it_runs() -> None:
    family = Root()
    place = worker(1)
    family.workflow.reserve(place, 0)
    assert family.books(600).children == 1
    family.workflow.admit(place)
    assert family.books(600).children == 1
    family.workflow.leave(place)

    assert family.books(600).children == 0


def test_a_place_promised_first_and_admitted_last_does_not_date_its_child_back() -> None:
    family = Root()
    first, second = worker(1), worker(1)
    family.workflow.reserve(first, 0)
    family.workflow.reserve(second, 50)
    for place in (second, first):
        family.workflow.admit(place)
        family.workflow.leave(place)

    assert [family.books(now).children for now in (649, 650)] == [1, 0]


def test_one_send_every_20_seconds_is_never_refused() -> None:
    family = Root()
    answers = []
    for number in range(300):
        now = number * 20.0
        answers.append(family.workflow.refusal(worker(), now))
        family.run(worker(), now)

    assert answers == [None] * 300
    assert family.books(299 * 20).worker_sends <= 30
    assert len(family.workflow._sends) == 12  # one count a slot, however many sends it had


# Ceilings.


def test_a_root_has_eight_turns_and_one_of_them_is_not_for_workers() -> None:
    family = Root()
    for _ in range(7):
        family.enter(worker())

    assert family.workflow.refusal(worker(), 0) == NO_TURN
    family.enter(interactive())
    assert family.workflow.refusal(interactive(), 0) == NO_TURN
    assert (family.books().active, family.books().workers) == (8, 7)


def test_the_65th_child_is_refused_and_one_that_counts_already_never_is() -> None:
    family = Root()
    for number in range(64):
        family.run(worker(number), number)

    refused = family.workflow.refusal(worker(64), 100)
    assert refused == Refusal(AdmissionReason.WORKFLOW_CHILDREN_EXHAUSTED, 500)
    for place in (worker(0), worker(63), worker(), interactive()):
        assert family.workflow.refusal(place, 100) is None
    assert family.workflow.refusal(worker(64), 600) is None


def test_the_257th_send_of_workers_is_refused_and_the_513th_of_all() -> None:
    family = Root()
    family.run(worker(), 0, sends=256)

    assert family.workflow.refusal(worker(), 60) == Refusal(
        AdmissionReason.WORKFLOW_SENDS_EXHAUSTED, 540
    )
    family.run(interactive(), 60, sends=256)
    refused = family.workflow.refusal(interactive(), 61)
    assert refused == Refusal(AdmissionReason.WORKFLOW_SENDS_EXHAUSTED, 539)
    assert family.workflow.refusal(interactive(), 600) is None
    assert family.workflow.refusal(worker(), 600) is None


def test_the_no_that_lasts_longest_comes_first() -> None:
    family = Root(SMALL)
    family.run(worker(1), 0, sends=2)
    family.enter(worker(2))
    family.enter(worker(2))
    reasons = [family.workflow.refusal(place, 0) for place in (worker(3), worker(1))]
    family.workflow.clear()
    reasons.append(family.workflow.refusal(worker(1), 0))

    assert [refused and refused.reason for refused in reasons] == [
        AdmissionReason.WORKFLOW_CHILDREN_EXHAUSTED,
        AdmissionReason.WORKFLOW_SENDS_EXHAUSTED,
        AdmissionReason.WORKFLOW_CONCURRENCY_EXHAUSTED,
    ]


# Announced sends.


def test_the_first_send_of_a_turn_is_its_own_and_every_further_one_asks() -> None:
    family = Root(SMALL)
    places = [family.enter(worker()), family.enter(worker())]
    sends = [family.workflow.sent(places[0], 0) for _ in range(4)]

    assert sends == [True, True, True, False]
    assert family.workflow.sent(places[1], 0)
    assert not family.workflow.sent(places[1], 0)
    assert family.books().worker_sends == 4


def test_a_send_that_was_announced_counts_in_the_slot_in_which_it_happens() -> None:
    family = Root(SMALL)
    place = family.enter(worker())
    family.workflow.sent(place, 115)
    family.workflow.leave(place)

    assert [family.books(now).worker_sends for now in (115, 229, 230)] == [1, 1, 0]


def test_a_place_is_given_back_once() -> None:
    family = Root()
    place = family.enter(worker())
    family.workflow.leave(place)

    with pytest.raises(KeyError):
        family.workflow.leave(place)


# When a refusal lifts.


def test_no_window_can_tell_when_turns_end_that_have_announced_all_sends_there_are() -> None:
    family = Root(WorkflowLimits(sends=1, sends_kept=0))
    family.enter(worker())

    assert family.workflow.refusal(worker(), 7) == Refusal(
        AdmissionReason.WORKFLOW_SENDS_EXHAUSTED, 600
    )


def test_no_window_can_tell_when_a_child_goes_if_all_of_them_have_a_turn() -> None:
    family = Root(WorkflowLimits(children=1))
    family.enter(worker(1))

    refused = family.workflow.refusal(worker(2), 7)
    assert refused == Refusal(AdmissionReason.WORKFLOW_CHILDREN_EXHAUSTED, 600)


HISTORY = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from([None, 1, 2, 3, 4]), st.integers(1, 3)),
    min_size=1,
    max_size=12,
)


@given(HISTORY, st.sampled_from([worker, lambda: worker(9), interactive]))
def test_a_refusal_lifts_when_it_says_and_not_before(
    history: list[tuple[int, int | None, int]], later: Makes
) -> None:
    family, now = Root(SMALL), 0
    for pause, child, sends in history:
        now += pause
        place = worker(child) if child else interactive()
        if family.workflow.refusal(place, now) is None:
            family.enter(place, now)
            for _ in range(sends):
                family.workflow.sent(place, now)
            family.workflow.leave(place)
    refused = family.workflow.refusal(later(), now)

    if refused is None:
        return
    assert refused.retry_seconds is not None
    assert 0 < refused.retry_seconds <= SMALL.window_seconds
    again = family.workflow.refusal(later(), now + refused.retry_seconds - 0.5)
    assert again == Refusal(refused.reason, 0.5)
    lifted = family.workflow.refusal(later(), now + refused.retry_seconds)
    assert lifted is None or lifted.reason is not refused.reason
