"""One number for all bytes held, and who gives way when it is reached."""

import pytest

from lifecycle import MemoryGate, Reservation


class Owner:
    """Holds something that it can do without."""

    def __init__(self, gate: MemoryGate, *sizes: int) -> None:
        self.evicted = 0
        self.parts: list[Reservation] = []
        for size in sizes:
            part = gate.reserve(size, self.evict)
            assert part is not None
            self.parts.append(part)

    def evict(self) -> None:
        self.evicted += 1
        while self.parts:
            self.parts.pop().give_back()


@pytest.fixture
def gate() -> MemoryGate:
    return MemoryGate(100)


def held(gate: MemoryGate) -> int:
    return gate.statistics().held_bytes


def reserve(gate: MemoryGate, size: int) -> Reservation:
    reservation = gate.reserve(size)
    assert reservation is not None
    return reservation


def test_exactly_the_limit_fits_and_one_byte_more_does_not(gate: MemoryGate) -> None:
    reserve(gate, 60)

    assert gate.reserve(41) is None
    assert held(gate) == 60
    assert gate.reserve(40) is not None
    assert (gate.statistics().held_bytes, gate.statistics().limit_bytes) == (100, 100)
    assert gate.reserve(0) is not None


def test_a_reservation_grows_and_shrinks_within_the_limit(gate: MemoryGate) -> None:
    reservation = reserve(gate, 10)
    reserve(gate, 50)

    assert reservation.grow(40)
    assert (reservation.size, held(gate)) == (50, 100)
    assert reservation.resize(20)
    assert (reservation.size, held(gate)) == (20, 70)


def test_growth_that_does_not_fit_changes_nothing(gate: MemoryGate) -> None:
    reservation = reserve(gate, 10)
    reserve(gate, 50)

    assert not reservation.grow(41)
    assert (reservation.size, held(gate)) == (10, 60)


def test_a_reservation_is_given_back_once(gate: MemoryGate) -> None:
    reservation = reserve(gate, 10)
    reservation.give_back()

    with pytest.raises(RuntimeError, match="was given back"):
        reservation.give_back()
    with pytest.raises(RuntimeError, match="was given back"):
        reservation.resize(5)
    assert (held(gate), reservation.size) == (0, 0)


def test_the_oldest_give_way_and_no_more_of_them_than_needed(gate: MemoryGate) -> None:
    owners = [Owner(gate, 30), Owner(gate, 30), Owner(gate, 30)]
    reserve(gate, 60)

    assert [owner.evicted for owner in owners] == [1, 1, 0]
    assert held(gate) == 90


def test_the_owner_that_was_touched_last_gives_way_last(gate: MemoryGate) -> None:
    first, second = Owner(gate, 40), Owner(gate, 40)
    first.parts[0].resize(41)
    reserve(gate, 40)

    assert (first.evicted, second.evicted) == (0, 1)


def test_an_owner_that_grows_makes_others_give_way_and_never_itself(gate: MemoryGate) -> None:
    growing, other = Owner(gate, 40), Owner(gate, 40)

    assert growing.parts[0].resize(100)
    assert (growing.evicted, other.evicted, held(gate)) == (0, 1, 100)
    assert not growing.parts[0].resize(101)
    assert (growing.evicted, held(gate)) == (0, 100)


def test_an_owner_may_drop_more_than_the_one_part_it_is_asked_for(gate: MemoryGate) -> None:
    owner, next_owner = Owner(gate, 20, 20), Owner(gate, 40)
    reserve(gate, 90)

    assert (owner.evicted, next_owner.evicted, held(gate)) == (1, 1, 90)


def test_fits_foretells_reserve_and_changes_nothing(gate: MemoryGate) -> None:
    owner = Owner(gate, 40)
    reserve(gate, 30)

    assert [gate.fits(size) for size in (0, 30, 70, 71)] == [True, True, True, False]
    assert (owner.evicted, held(gate)) == (0, 70)
    assert gate.reserve(70) is not None
