"""The ledger with roots: the turns of `test_ledger_machine.py`, and whose budget pays for them.

Turns of root threads, of workers, of guardians and of no root ask for lanes, follow each other,
send and send again, while time passes and roots are forgotten and forgiven.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from lifecycle import AdmissionReason, Ask, Granted, LeaseId
from tests.lifecycle.asks import ask as an_ask
from tests.lifecycle.asks import child, root, top
from tests.lifecycle.budgets import Budgets
from tests.lifecycle.test_ledger_machine import WORKFLOW, TurnsMachine

LANES = st.sampled_from([0, 1, 2, 3, None, None, None])
TOPS = st.builds(top, st.sampled_from([0, 0, 1, 2]), in_lane=LANES)
CHILDREN = st.builds(
    child,
    st.sampled_from([1, 2, 3, 4, 5, 6, 7]),
    st.sampled_from([0, 0, 0, 1, 2]),
    st.sampled_from([0, 0, 1, None]),
    worker=st.booleans(),
    counted=st.booleans(),
    in_lane=LANES,
)
STRANGERS = st.builds(an_ask, LANES, worker=st.booleans(), body_bytes=st.sampled_from([0, 5]))
ASKS = st.one_of(CHILDREN, CHILDREN, TOPS, STRANGERS)
ROLLING = {AdmissionReason.WORKFLOW_CHILDREN_EXHAUSTED, AdmissionReason.WORKFLOW_SENDS_EXHAUSTED}


class WorkflowMachine(TurnsMachine):
    def __init__(self) -> None:
        super().__init__()
        self.budgets = Budgets(WORKFLOW)
        self.judged: tuple[Ask, LeaseId | None] | None = None

    @rule(ask=ASKS)
    def ask(self, ask: Ask) -> None:
        super().ask(ask)

    @rule(ask=CHILDREN)
    def ask_as_a_child(self, ask: Ask) -> None:
        super().ask(ask)

    @precondition(lambda self: self.world.leases)
    @rule(data=st.data(), ask=ASKS, gives_way=st.booleans())
    def succeed(self, data: st.DataObject, ask: Ask, gives_way: bool) -> None:
        super().succeed(data, ask, gives_way)

    @precondition(lambda self: self.world.leases)
    @rule(data=st.data(), times=st.integers(1, 3))
    def send(self, data: st.DataObject, times: int) -> None:
        lease_id = self.draw(data, self.world.leases)
        for _ in range(times):
            may = self.budgets.may_send(lease_id)

            assert self.ledger.sent(lease_id, self.now) == may
            if may:
                self.budgets.sent(lease_id)

    @rule(seconds=st.sampled_from([1.0, 3.5, 4.0, 12.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.now = self.budgets.now = self.now + seconds

    @rule(number=st.sampled_from([0, 1, 2, 3, 4, 5]))
    def clear(self, number: int) -> None:
        tracked = root(number) in self.budgets.tracked
        self.budgets.clear(root(number))

        assert self.ledger.workflows.clear(root(number)) == tracked

    @invariant()
    def every_root_has_spent_what_the_model_says(self) -> None:
        all_of_them = self.ledger.workflows.statistics()

        assert self.ledger.workflows.each(self.now) == self.budgets.statistics()
        assert all_of_them.refused == self.budgets.all_refused
        assert all_of_them.tracked == len(self.budgets.tracked) <= all_of_them.limit
        active = [x for x in self.budgets.tracked if not self.budgets.is_idle(x)]
        assert all_of_them.active == len(active)

    @invariant()
    def no_root_exceeds_a_ceiling(self) -> None:
        for books in self.ledger.workflows.each(self.now).values():
            assert books.active <= WORKFLOW.turns
            assert books.workers <= WORKFLOW.turns - WORKFLOW.kept
            assert books.children <= WORKFLOW.children
            assert books.worker_sends <= WORKFLOW.sends
            sends = books.worker_sends + books.interactive_sends
            assert sends <= WORKFLOW.sends + WORKFLOW.sends_kept

    def teardown(self) -> None:
        super().teardown()  # what that holds in the end has no root
        workflows = self.ledger.workflows
        spent = workflows.each(self.now)
        self.now += WORKFLOW.window_seconds

        assert spent == self.budgets.statistics()
        assert {(x.active, x.workers) for x in spent.values()} <= {(0, 0)}
        for number in range(10, 10 + WORKFLOW.roots):  # a root that is idle and forgiven gives way
            assert workflows.refusal(top(number), self.now) is None
            assert workflows.reserve(top(number), self.now) is not None
        assert workflows.each(self.now).keys() == {root(10), root(11)}

    # What the rules of `super()` ask for.

    def workflow_refusal(self, ask: Ask, earlier: LeaseId | None) -> AdmissionReason | None:
        self.judged = ask, earlier
        return self.budgets.refusal(ask, earlier)

    def retry_seconds(self, refusal: AdmissionReason) -> float | None:
        if refusal not in ROLLING:
            return None
        assert self.judged is not None
        return self.budgets.retry_seconds(*self.judged, refusal)

    def refused(self, decision: object, refusal: AdmissionReason) -> None:
        super().refused(decision, refusal)
        if refusal.value.startswith("workflow_"):
            assert self.judged is not None
            self.budgets.was_refused(self.judged[0])

    def granted(self, decision: object, ask: Ask) -> None:
        super().granted(decision, ask)
        assert isinstance(decision, Granted)
        self.budgets.granted(decision.lease_id, ask)

    def waits(self, decision: object, earlier: LeaseId, ask: Ask) -> None:
        super().waits(decision, earlier, ask)
        self.budgets.waits(earlier, ask)

    def unfollowed(self, earlier: LeaseId) -> None:
        super().unfollowed(earlier)
        self.budgets.followers.pop(earlier, None)

    def end(self, lease_id: LeaseId) -> None:
        heir = self.waiting.get(lease_id)
        super().end(lease_id)
        self.budgets.ended(lease_id, None if heir is None else heir.lease_id)


TestWorkflows = WorkflowMachine.TestCase
TestWorkflows.settings = settings(max_examples=40, stateful_step_count=50)


@pytest.mark.load  # a quarter of a minute
def test_the_same_at_length() -> None:
    run_state_machine_as_test(
        WorkflowMachine, settings=settings(max_examples=400, stateful_step_count=50)
    )
