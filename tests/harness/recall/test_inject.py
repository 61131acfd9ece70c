"""The defect that is injected is the one that is meant: a lease that is not given back."""

from harness.recall.inject import FIRST_LEAK, LEAK_EVERY, inject_leak
from lifecycle.ask import LeaseId
from lifecycle.ledger import Ledger, Waiting
from lifecycle.limits import Limits


class Recording(Ledger):
    """Says which leases it is really given back."""

    def __init__(self) -> None:
        super().__init__(Limits())
        self.record: list[int] = []

    def give_back(self, lease_id: LeaseId) -> Waiting | None:
        self.record.append(lease_id)
        return None


def test_now_and_then_a_lease_is_not_given_back() -> None:
    inject_leak(Recording)
    ledger = Recording()
    everything = range(1, 2 * LEAK_EVERY)
    for number in everything:
        ledger.give_back(LeaseId(number))

    assert set(everything) - set(ledger.record) == {FIRST_LEAK, FIRST_LEAK + LEAK_EVERY}
