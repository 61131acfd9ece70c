"""What pools of accounts were seen to get wrong, replayed through the whole proxy."""

from collections import Counter

import pytest
import trio
from trio.testing import MockClock

from proxy.accounts.account import ANY, Standing
from proxy.outbox import Outcome
from tests.kit.accounts import account, moves, served_by
from tests.kit.runtime import TRANSPORTS, WALL, Bench, Transport
from tests.kit.upstream import Script, answer, failing, rejecting
from tests.proxy.accounts.test_turns import turns

both = pytest.mark.parametrize("transport", TRANSPORTS)


@both
@pytest.mark.parametrize("no", [failing(), rejecting(429, b"{}")], ids=["unreachable", "throttled"])
async def test_an_account_that_failed_once_serves_new_threads_again(
    no: Script, transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, no, *[answer()] * 41, accounts=[account("a"), account("b")])
    await turns(bench, "first", transport=transport)
    await trio.sleep(60)

    await turns(bench, *[f"thread {number}" for number in range(40)], transport=transport)

    assert Counter(served_by(bench)[2:]) == {"a": 20, "b": 20}
    assert [why for _, _, why in moves(bench)].count("probe") == 1
    assert all(
        each.view().standing(ANY, WALL) is Standing.READY for each in bench.runtime.accounts.all()
    )


async def test_an_account_that_stays_down_costs_one_new_thread_a_minute_a_detour(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, accounts=[account("a"), account("b")])
    for number in range(60):
        due = not bench.upstream.sent or bench.runtime.accounts.views()[0].may_probe(
            ANY, bench.runtime.wall()
        )
        bench.upstream.will(*([failing()] if due else []), answer())
        await turns(bench, f"thread {number}")
        await trio.sleep(10)

    served = Counter(served_by(bench))
    assert served["b"] == 60
    assert served["a"] <= 15
    assert bench.outcomes == [Outcome.COMPLETED] * 60
