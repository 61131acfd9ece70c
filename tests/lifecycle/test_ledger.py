"""The ledger by example; `test_ledger_machine.py` has the rest of its life."""

import pytest

from lifecycle import (
    AdmissionReason,
    Ask,
    Granted,
    LeaseId,
    Ledger,
    Limits,
    Refusal,
    Reservation,
    Waiting,
)
from tests.lifecycle.asks import ask, lane

NOW = 0.0
BUSY = Refusal(AdmissionReason.LANE_BUSY)
NO_LANE = Refusal(AdmissionReason.LANES_AT_CAPACITY)
NO_TURN = Refusal(AdmissionReason.TURNS_AT_CAPACITY)
NO_MEMORY = Refusal(AdmissionReason.MEMORY_AT_CAPACITY)
SMALL = Limits(turns=4, lanes=3, lanes_kept=1, memory_bytes=100)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(Limits())


def granted(ledger: Ledger, *asks: Ask) -> list[LeaseId]:
    answers = [ledger.ask(ask, NOW) for ask in asks]
    leases = [answer.lease_id for answer in answers if isinstance(answer, Granted)]
    assert len(leases) == len(asks), answers
    return leases


def waiting(answer: object) -> Waiting:
    assert isinstance(answer, Waiting)
    return answer


def lanes_filled(ledger: Ledger, number: int, *, worker: bool = False) -> list[LeaseId]:
    return granted(ledger, *(ask(n, worker=worker) for n in range(number)))


def books(ledger: Ledger) -> tuple[int, int, int, int]:
    """Lanes, the bytes that these retain, turns, bytes of bodies."""
    now = ledger.statistics()
    return (
        now.lanes.active,
        now.lanes.retained_bytes,
        now.turns.active,
        now.memory.held_bytes,
    )


# Ceilings.


def test_64_lanes_retain_2048_bytes_and_the_65th_is_refused_without_one_more(
    ledger: Ledger,
) -> None:
    leases = lanes_filled(ledger, 64)
    full = books(ledger)

    assert ledger.ask(ask(64), NOW) == NO_LANE
    assert books(ledger) == full == (64, 2048, 64, 0)
    assert ledger.holders(lane(64)) == frozenset()
    for lease_id in leases:
        ledger.give_back(lease_id)
    assert books(ledger) == (0, 0, 0, 0)
    assert ledger.statistics().lanes.peak_retained_bytes == 2048


def test_32_lanes_retain_1024_bytes_and_none_afterwards(ledger: Ledger) -> None:
    leases = lanes_filled(ledger, 32)

    assert books(ledger) == (32, 1024, 32, 0)
    for lease_id in leases:
        ledger.give_back(lease_id)
    assert books(ledger) == (0, 0, 0, 0)
    assert ledger.statistics().lanes.peak_retained_bytes == 1024


def test_a_lane_given_back_makes_room_for_the_one_that_was_refused(ledger: Ledger) -> None:
    leases = lanes_filled(ledger, 64)
    ledger.ask(ask(64), NOW)
    ledger.give_back(leases[17])

    granted(ledger, ask(64))


def test_siblings_of_one_fan_out_have_lanes_of_their_own(ledger: Ledger) -> None:
    granted(ledger, *(ask(n, worker=True, body_bytes=400_000) for n in range(8)))

    assert books(ledger) == (8, 256, 8, 3_200_000)


def test_256_anonymous_turns_overlap_without_a_lane_and_the_257th_is_refused(
    ledger: Ledger,
) -> None:
    granted(ledger, *(ask() for _ in range(256)))

    assert ledger.ask(ask(), NOW) == NO_TURN
    assert ledger.ask(ask(1), NOW) == NO_TURN
    assert books(ledger) == (0, 0, 256, 0)


def test_eight_lanes_are_kept_for_interactive_turns(ledger: Ledger) -> None:
    lanes_filled(ledger, 56, worker=True)

    assert ledger.ask(ask(99, worker=True), NOW) == NO_LANE
    granted(ledger, *(ask(n) for n in range(56, 64)))
    assert ledger.ask(ask(99), NOW) == NO_LANE


def test_interactive_turns_may_have_every_lane(ledger: Ledger) -> None:
    lanes_filled(ledger, 64)

    assert ledger.ask(ask(99, worker=True), NOW) == NO_LANE


def test_a_worker_has_no_lane_once_interactive_turns_and_workers_hold_all(ledger: Ledger) -> None:
    granted(ledger, *(ask(n, worker=n < 40) for n in range(64)))

    assert ledger.ask(ask(99, worker=True), NOW) == NO_LANE


def test_an_anonymous_worker_needs_no_lane(ledger: Ledger) -> None:
    lanes_filled(ledger, 56, worker=True)

    granted(ledger, ask(worker=True))


def test_a_lane_stays_a_worker_s_while_it_passes_from_lease_to_lease() -> None:
    ledger = Ledger(Limits(lanes=3, lanes_kept=1))
    first, _ = granted(ledger, ask(0, worker=True), ask(1, worker=True))
    ledger.succeed(first, ask(0), NOW)
    ledger.give_back(first)

    assert ledger.ask(ask(2, worker=True), NOW) == NO_LANE
    granted(ledger, ask(2))


def test_a_worker_that_inherits_an_interactive_lane_takes_none_from_the_workers() -> None:
    ledger = Ledger(Limits(lanes=3, lanes_kept=1))
    first, _ = granted(ledger, ask(0), ask(1, worker=True))
    ledger.succeed(first, ask(0, worker=True), NOW)
    ledger.give_back(first)

    granted(ledger, ask(2, worker=True))


def test_bodies_beyond_the_memory_gate_are_refused(ledger: Ledger) -> None:
    granted(ledger, ask(1, body_bytes=256 * 2**20))
    full = books(ledger)

    assert ledger.ask(ask(2, body_bytes=1), NOW) == NO_MEMORY
    assert books(ledger) == full == (1, 32, 1, 256 * 2**20)
    granted(ledger, ask(2))


def test_a_lease_holds_more_as_its_body_arrives_until_the_gate_is_full(ledger: Ledger) -> None:
    (lease_id,) = granted(ledger, ask(1, body_bytes=2**20))

    assert ledger.grow(lease_id, 255 * 2**20)
    assert not ledger.grow(lease_id, 1)
    assert books(ledger)[3] == 256 * 2**20
    ledger.give_back(lease_id)
    assert books(ledger)[3] == 0


def test_the_reasons_to_refuse_have_an_order() -> None:
    ledger = Ledger(Limits(turns=2, lanes=1, lanes_kept=0, memory_bytes=10))
    (named,) = granted(ledger, ask(0))
    granted(ledger, ask(body_bytes=10))
    waiting(ledger.ask(ask(0), NOW))

    assert ledger.ask(ask(0, body_bytes=1), NOW) == BUSY
    assert ledger.ask(ask(1, body_bytes=1), NOW) == NO_LANE
    assert ledger.ask(ask(body_bytes=1), NOW) == NO_TURN
    ledger.give_back(named)
    heir = next(iter(ledger.holders(lane(0))))
    ledger.give_back(heir)
    assert ledger.ask(ask(1, body_bytes=1), NOW) == NO_MEMORY
    ledger.draining = True
    assert ledger.ask(ask(0), NOW) == Refusal(AdmissionReason.DRAINING)
    assert ledger.succeed(named, ask(0), NOW) == Refusal(AdmissionReason.DRAINING)


def test_refusals_are_counted_and_those_of_lanes_apart(ledger: Ledger) -> None:
    lanes_filled(ledger, 64)
    waiting(ledger.ask(ask(1), NOW))
    answers = [ledger.ask(x, NOW) for x in (ask(1), ask(64), ask(body_bytes=2**30))]
    now = ledger.statistics()

    assert answers == [BUSY, NO_LANE, NO_MEMORY]
    assert (now.lanes.refused, now.turns.refused) == (2, 3)
    assert (now.lanes.admitted, now.turns.admitted) == (64, 64)


# Waiting for a lane that another connection holds.


def test_the_successor_holds_the_lane_in_the_step_that_gives_it_back() -> None:
    events: list[tuple[str, LeaseId]] = []
    ledger = Ledger(Limits(), lambda what, lease_id: events.append((what, lease_id)))
    (first,) = granted(ledger, ask(1))
    second = waiting(ledger.ask(ask(1), NOW))

    assert ledger.give_back(first) is second
    assert second.lease_id is not None
    assert ledger.holders(lane(1)) == {second.lease_id}
    assert events == [("admitted", first), ("released", first), ("admitted", second.lease_id)]
    assert books(ledger) == (1, 32, 1, 0)
    assert ledger.statistics().turns.peak == ledger.statistics().lanes.peak == 1


def test_a_lane_has_one_successor_and_refuses_the_second(ledger: Ledger) -> None:
    (first,) = granted(ledger, ask(1))
    second = waiting(ledger.ask(ask(1), NOW))

    assert ledger.ask(ask(1), NOW) == BUSY
    assert ledger.succeed(first, ask(1), NOW) == BUSY
    assert ledger.give_back(first) is second


def test_whoever_waits_needs_no_turn_of_its_own() -> None:
    ledger = Ledger(Limits(turns=1))
    (first,) = granted(ledger, ask(1))
    second = waiting(ledger.ask(ask(1), NOW))

    assert ledger.ask(ask(), NOW) == NO_TURN
    ledger.give_back(first)
    assert ledger.ask(ask(), NOW) == NO_TURN
    assert second.lease_id is not None


def test_whoever_waits_has_set_aside_what_its_body_needs_beyond_the_earlier_one() -> None:
    ledger = Ledger(SMALL)
    (first,) = granted(ledger, ask(1, body_bytes=60))
    waiting(ledger.ask(ask(1, body_bytes=90), NOW))

    assert books(ledger)[3] == 90
    assert ledger.ask(ask(2, body_bytes=11), NOW) == NO_MEMORY
    ledger.give_back(first)
    assert books(ledger)[3] == 90


def test_whoever_waits_with_a_smaller_body_sets_nothing_aside() -> None:
    ledger = Ledger(SMALL)
    (first,) = granted(ledger, ask(1, body_bytes=100))
    waiting(ledger.ask(ask(1, body_bytes=30), NOW))

    assert books(ledger)[3] == 100
    ledger.give_back(first)
    assert books(ledger)[3] == 30


def test_a_body_that_does_not_fit_beside_the_others_does_not_wait() -> None:
    ledger = Ledger(SMALL)
    granted(ledger, ask(1, body_bytes=60), ask(2, body_bytes=20))

    assert ledger.ask(ask(1, body_bytes=81), NOW) == NO_MEMORY
    waiting(ledger.ask(ask(1, body_bytes=80), NOW))


def test_whoever_stops_waiting_leaves_nothing_behind() -> None:
    ledger = Ledger(SMALL)
    (first,) = granted(ledger, ask(1, body_bytes=10))
    second = waiting(ledger.ask(ask(1, body_bytes=100), NOW))
    ledger.abandon(second)

    assert books(ledger) == (1, 32, 1, 10)
    assert ledger.give_back(first) is None
    assert books(ledger) == (0, 0, 0, 0)


def test_sharing_a_lane_asks_for_a_turn_and_memory_and_for_no_lane() -> None:
    ledger = Ledger(Limits(turns=3, lanes=1, lanes_kept=0, memory_bytes=100))
    granted(ledger, ask(1, body_bytes=40))
    shared = ledger.share(waiting(ledger.ask(ask(1, body_bytes=50), NOW)), NOW)

    assert isinstance(shared, Granted)
    assert books(ledger) == (1, 32, 2, 90)
    assert ledger.share(waiting(ledger.ask(ask(1, body_bytes=11), NOW)), NOW) == NO_MEMORY
    granted(ledger, ask())
    assert ledger.share(waiting(ledger.ask(ask(1), NOW)), NOW) == NO_TURN
    assert books(ledger) == (1, 32, 3, 90)
    ledger.give_back(shared.lease_id)
    assert books(ledger) == (1, 32, 2, 40)


def test_in_a_shared_lane_one_waits_for_the_oldest_that_nobody_follows(ledger: Ledger) -> None:
    (first,) = granted(ledger, ask(1))
    second = ledger.share(waiting(ledger.ask(ask(1), NOW)), NOW)
    assert isinstance(second, Granted)
    ledger.succeed(first, ask(), NOW)

    assert waiting(ledger.ask(ask(1), NOW)).earlier == second.lease_id


def test_a_shared_lane_has_one_successor_too(ledger: Ledger) -> None:
    granted(ledger, ask(1))
    assert isinstance(ledger.share(waiting(ledger.ask(ask(1), NOW)), NOW), Granted)
    waiting(ledger.ask(ask(1), NOW))

    assert ledger.ask(ask(1), NOW) == BUSY


# Replacing the turn of one's own connection.


def test_a_turn_passes_everything_on_to_the_one_that_replaces_it() -> None:
    ledger = Ledger(Limits(turns=1, lanes=1, lanes_kept=0, memory_bytes=10))
    (first,) = granted(ledger, ask(1, body_bytes=10))
    second = waiting(ledger.succeed(first, ask(1, body_bytes=10), NOW))

    assert (ledger.ask(ask(), NOW), ledger.ask(ask(2), NOW)) == (NO_TURN, NO_LANE)
    assert ledger.give_back(first) is second
    assert books(ledger) == (1, 32, 1, 10)


def test_a_replacement_that_does_not_fit_is_refused_and_the_earlier_turn_runs_on() -> None:
    ledger = Ledger(SMALL)
    (first,) = granted(ledger, ask(1, body_bytes=60))
    before = books(ledger)

    assert ledger.succeed(first, ask(1, body_bytes=101), NOW) == NO_MEMORY
    assert books(ledger) == before
    assert ledger.holders(lane(1)) == {first}
    assert ledger.give_back(first) is None


def test_a_replacement_in_another_lane_reserves_that_lane_at_once() -> None:
    ledger = Ledger(SMALL)
    (first,) = granted(ledger, ask(1))
    second = waiting(ledger.succeed(first, ask(2), NOW))

    assert ledger.ask(ask(2), NOW) == BUSY
    assert books(ledger) == (1, 32, 1, 0)
    ledger.give_back(first)
    assert second.lease_id is not None
    assert ledger.holders(lane(2)) == {second.lease_id}
    assert books(ledger) == (1, 32, 1, 0)
    assert ledger.statistics().lanes.peak == 1


def test_a_replacement_may_change_lanes_when_all_are_taken_and_takes_none_beyond() -> None:
    ledger = Ledger(SMALL)
    first, *_ = lanes_filled(ledger, 3)
    second = waiting(ledger.succeed(first, ask(7), NOW))

    assert ledger.ask(ask(8), NOW) == NO_LANE
    ledger.give_back(first)
    assert ledger.ask(ask(8), NOW) == NO_LANE
    assert second.lease_id is not None
    ledger.give_back(second.lease_id)
    granted(ledger, ask(8))


def test_the_lane_that_a_replacement_leaves_is_nobody_s_to_wait_for(ledger: Ledger) -> None:
    (first,) = granted(ledger, ask(1))
    second = waiting(ledger.succeed(first, ask(2), NOW))

    assert ledger.ask(ask(1), NOW) == BUSY
    assert ledger.give_back(first) is second
    granted(ledger, ask(1))


def test_a_replacement_cannot_have_a_lane_that_others_hold_or_will(ledger: Ledger) -> None:
    first, _, third = granted(ledger, ask(1), ask(2), ask(3))
    waiting(ledger.succeed(third, ask(4), NOW))

    assert ledger.succeed(first, ask(2), NOW) == BUSY
    assert ledger.succeed(first, ask(4), NOW) == BUSY
    assert ledger.give_back(first) is None


def test_a_replacement_of_an_anonymous_turn_needs_a_lane_that_is_left() -> None:
    ledger = Ledger(SMALL)
    (first,) = granted(ledger, ask())
    lanes_filled(ledger, 3)

    assert ledger.succeed(first, ask(7), NOW) == NO_LANE
    ledger.give_back(next(iter(ledger.holders(lane(0)))))
    waiting(ledger.succeed(first, ask(7), NOW))
    assert ledger.ask(ask(0), NOW) == NO_LANE


def test_a_replacement_that_leaves_a_shared_lane_needs_another_one() -> None:
    ledger = Ledger(Limits(lanes=1, lanes_kept=0))
    (first,) = granted(ledger, ask(1))
    ledger.share(waiting(ledger.ask(ask(1), NOW)), NOW)

    assert ledger.succeed(first, ask(2), NOW) == NO_LANE


def test_a_worker_does_not_replace_an_interactive_turn_to_get_a_lane_kept_for_those() -> None:
    ledger = Ledger(SMALL)
    interactive, worker, _ = granted(ledger, ask(0), ask(1, worker=True), ask(2, worker=True))

    assert ledger.succeed(interactive, ask(7, worker=True), NOW) == NO_LANE
    waiting(ledger.succeed(worker, ask(7, worker=True), NOW))


def test_a_replacement_without_a_lane_gives_up_that_of_the_earlier_turn(ledger: Ledger) -> None:
    (first,) = granted(ledger, ask(1))
    second = waiting(ledger.succeed(first, ask(), NOW))

    assert ledger.ask(ask(1), NOW) == BUSY
    assert ledger.give_back(first) is second
    assert books(ledger) == (0, 0, 1, 0)


def test_a_third_turn_takes_the_place_of_the_one_that_waits() -> None:
    ledger = Ledger(SMALL)
    (first,) = granted(ledger, ask(1, body_bytes=10))
    second = waiting(ledger.succeed(first, ask(1, body_bytes=100), NOW))
    third = waiting(ledger.succeed(first, ask(1, body_bytes=90), NOW, instead_of=second))

    assert (second.superseded, third.superseded) == (True, False)
    assert books(ledger)[3] == 90
    assert ledger.give_back(first) is third
    assert second.lease_id is None


def test_a_third_turn_has_the_lane_that_the_second_had_set_aside() -> None:
    ledger = Ledger(SMALL)
    (first,) = granted(ledger, ask())
    granted(ledger, ask(0), ask(1))
    second = waiting(ledger.succeed(first, ask(7), NOW))
    third = waiting(ledger.succeed(first, ask(8), NOW, instead_of=second))

    assert ledger.ask(ask(7), NOW) == NO_LANE
    assert ledger.give_back(first) is third
    assert ledger.holders(lane(8)) == {third.lease_id}


def test_a_third_turn_that_does_not_fit_leaves_the_second_waiting() -> None:
    ledger = Ledger(SMALL)
    (first,) = granted(ledger, ask(1, body_bytes=10))
    second = waiting(ledger.succeed(first, ask(1, body_bytes=50), NOW))

    assert ledger.succeed(first, ask(1, body_bytes=101), NOW, instead_of=second) == NO_MEMORY
    assert (books(ledger)[3], second.superseded) == (50, False)
    assert ledger.give_back(first) is second


def test_a_third_turn_follows_the_second_if_that_was_granted_in_the_meantime(
    ledger: Ledger,
) -> None:
    (first,) = granted(ledger, ask(1))
    second = waiting(ledger.succeed(first, ask(1), NOW))
    ledger.give_back(first)
    third = waiting(ledger.succeed(first, ask(1), NOW, instead_of=second))

    assert (third.earlier, second.superseded) == (second.lease_id, False)


def test_whoever_has_a_successor_gets_another_one_only_in_its_place(ledger: Ledger) -> None:
    (first,) = granted(ledger, ask(1))
    second = waiting(ledger.succeed(first, ask(1), NOW))

    assert ledger.succeed(first, ask(1), NOW) == BUSY
    assert ledger.succeed(first, ask(2), NOW) == BUSY
    assert ledger.give_back(first) is second


# Evictable memory.


def test_a_waiting_ask_may_make_others_give_way_and_a_refused_one_may_not() -> None:
    ledger = Ledger(SMALL)
    granted(ledger, ask(1, body_bytes=40))
    kept: list[Reservation] = []
    reservation = ledger.memory.reserve(30, lambda: kept.pop().give_back())
    assert reservation is not None
    kept.append(reservation)

    assert ledger.ask(ask(1, body_bytes=101), NOW) == NO_MEMORY
    assert (kept, books(ledger)[3]) == ([reservation], 70)
    waiting(ledger.ask(ask(1, body_bytes=100), NOW))
    assert (kept, books(ledger)[3]) == ([], 100)


# Misuse.


def test_a_lease_is_given_back_once(ledger: Ledger) -> None:
    (first,) = granted(ledger, ask(1))
    ledger.give_back(first)

    with pytest.raises(KeyError):
        ledger.give_back(first)
    with pytest.raises(KeyError):
        ledger.grow(first, 1)
    with pytest.raises(KeyError):
        ledger.succeed(first, ask(1), NOW)
    assert books(ledger) == (0, 0, 0, 0)


def test_what_was_granted_superseded_or_abandoned_cannot_be_abandoned(ledger: Ledger) -> None:
    first, other = granted(ledger, ask(1), ask(2))
    superseded = waiting(ledger.succeed(first, ask(1), NOW))
    successor = waiting(ledger.succeed(first, ask(1), NOW, instead_of=superseded))
    abandoned = waiting(ledger.ask(ask(2), NOW))
    ledger.abandon(abandoned)
    with pytest.raises(RuntimeError, match="waits no longer"):
        ledger.abandon(superseded)
    with pytest.raises(RuntimeError, match="waits no longer"):
        ledger.abandon(abandoned)

    assert ledger.give_back(first) is successor
    assert ledger.give_back(other) is None
    with pytest.raises(RuntimeError, match="waits no longer"):
        ledger.abandon(successor)


def test_a_lease_does_not_shrink_under_its_successor() -> None:
    ledger = Ledger(SMALL)
    (first,) = granted(ledger, ask(1, body_bytes=60))

    with pytest.raises(ValueError, match="does not shrink"):
        ledger.grow(first, -1)
