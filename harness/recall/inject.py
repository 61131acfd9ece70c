"""A proxy that now and then does not give a lease back: `--inject leak` starts it as the child.

The one file of the harness that imports what it loads. A run against it must fail.
"""

from itertools import count

from lifecycle.ask import LeaseId
from lifecycle.ledger import Ledger, Waiting
from proxy.cli.main import main

LEAK_EVERY = 40
FIRST_LEAK = 2


def inject_leak(kind: type[Ledger]) -> None:
    """Make `give_back` forget the second lease, and then every LEAK_EVERY-th."""
    give_back = kind.give_back
    calls = count(1)

    def forgetful(self: Ledger, lease_id: LeaseId) -> Waiting | None:
        if next(calls) % LEAK_EVERY == FIRST_LEAK:
            return None
        return give_back(self, lease_id)

    kind.give_back = forgetful  # type: ignore[method-assign]


if __name__ == "__main__":
    inject_leak(Ledger)
    main()
