"""The ledger by example: what a reader should see; `test_ledger_machine.py` shows all the rest."""

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


@pytest.mark.parametrize(("number", "retained_bytes"), [(32, 1024), (64, 2048)])
def test_a_lane_retains_32_bytes_and_none_afterwards(
    number: int, retained_bytes: int, ledger: Ledger
) -> None:
    leases = lanes_filled(ledger, number)

    assert books(ledger) == (number, retained_bytes, number, 0)
    for lease_id in leases:
        ledger.give_back(lease_id)
    assert books(ledger) == (0, 0, 0, 0)
    assert ledger.statistics().lanes.peak_retained_bytes == retained_bytes


def test_the_65th_lane_is_refused_without_one_byte_more(ledger: Ledger) -> None:
    lanes_filled(ledger, 64)

    assert ledger.ask(ask(64), NOW) == NO_LANE
    assert books(ledger) == (64, 2048, 64, 0)
    assert ledger.holders(lane(64)) == frozenset()


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


def test_bodies_beyond_the_memory_gate_are_refused(ledger: Ledger) -> None:
    granted(ledger, ask(1, body_bytes=256 * 2**20))
    full = books(ledger)

    assert ledger.ask(ask(2, body_bytes=1), NOW) == NO_MEMORY
    assert books(ledger) == full == (1, 32, 1, 256 * 2**20)
    granted(ledger, ask(2))


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


def test_a_third_turn_takes_the_place_of_the_one_that_waits() -> None:
    ledger = Ledger(SMALL)
    (first,) = granted(ledger, ask(1, body_bytes=10))
    second = waiting(ledger.succeed(first, ask(1, body_bytes=100), NOW))
    third = waiting(ledger.succeed(first, ask(1, body_bytes=90), NOW, instead_of=second))

    assert (second.superseded, third.superseded) == (True, False)
    assert books(ledger)[3] == 90
    assert ledger.give_back(first) is third
    assert second.lease_id is None


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
