"""A plan is a function of its arguments, and nothing in it occurs twice."""

from hypothesis import given
from hypothesis import strategies as st

from harness.recall.faults import Fault, RecallTransport, kinds
from harness.recall.plan import MOST_CALLS, Pace, make_plan

SEEDS = st.integers(0, 2**32)
SESSIONS = st.integers(1, 12)
ROUNDS = st.integers(1, 5)
TRANSPORTS = st.sampled_from(RecallTransport)


@given(SEEDS, TRANSPORTS, SESSIONS, ROUNDS)
def test_the_same_seed_is_the_same_run(
    seed: int, transport: RecallTransport, sessions: int, rounds: int
) -> None:
    plans = [
        make_plan(seed=seed, transport=transport, sessions=sessions, rounds=rounds)
        for _ in range(2)
    ]

    assert plans[0] == plans[1]


def test_another_seed_is_another_run() -> None:
    one, other = (
        make_plan(seed=seed, transport=RecallTransport.WS, sessions=2, rounds=1) for seed in (1, 2)
    )

    assert one != other


@given(SEEDS, TRANSPORTS, SESSIONS, ROUNDS)
def test_nothing_planted_occurs_twice(
    seed: int, transport: RecallTransport, sessions: int, rounds: int
) -> None:
    plan = make_plan(seed=seed, transport=transport, sessions=sessions, rounds=rounds, beyond=2)
    everybody = list(plan.sessions())
    calls = [call for session in everybody for turn in session.turns for call in turn.calls]
    tags = [planned.exchange.tag for planned in (*plan.exchanges(), *plan.refused())]

    assert len({session.secret for session in everybody}) == len(everybody)
    assert len(plan.by_thread()) == len(everybody) == 2 * sessions + 2
    assert len({call.call_id for call in calls}) == len(calls)
    assert len(set(tags)) == len(tags) == plan.requests


@given(SEEDS, TRANSPORTS, SESSIONS, ROUNDS)
def test_every_session_takes_its_rounds_at_the_pace_that_was_asked_for(
    seed: int, transport: RecallTransport, sessions: int, rounds: int
) -> None:
    pace = Pace(tool_seconds=(1.0, 2.0), fault_seconds=(3.0, 4.0))
    plan = make_plan(seed=seed, transport=transport, sessions=sessions, rounds=rounds, pace=pace)

    for session in plan.waves:
        assert [turn.number for turn in session.turns] == list(range(rounds))
        assert all(turn.held and turn.fault is None for turn in session.turns)
        for turn in session.turns:
            assert 1 <= len(turn.calls) <= MOST_CALLS
            assert all(1.0 <= call.latency_seconds <= 2.0 for call in turn.calls)
    faulty = [turn for session in plan.faulty for turn in session.turns if turn.fault]
    assert all(3.0 <= turn.fault.delay_seconds <= 4.0 for turn in faulty if turn.fault)


@given(SEEDS, TRANSPORTS, SESSIONS, ROUNDS)
def test_every_fault_is_met_between_two_healthy_turns(
    seed: int, transport: RecallTransport, sessions: int, rounds: int
) -> None:
    plan = make_plan(seed=seed, transport=transport, sessions=sessions, rounds=rounds)
    met = {planned.fault for planned in plan.exchanges()} - {None}

    assert met == set(kinds(transport))
    for session in plan.faulty:
        assert session.turns[0].fault is None
        assert session.turns[-1].fault is None
        assert all(turn.fault for turn in session.turns[1:-1])


@given(SEEDS, TRANSPORTS)
def test_a_fan_out_is_one_family(seed: int, transport: RecallTransport) -> None:
    plan = make_plan(seed=seed, transport=transport, sessions=2, rounds=1, fan_out=True)
    alone = make_plan(seed=seed, transport=transport, sessions=2, rounds=1)
    assert plan.fan_out is not None
    root, children = plan.fan_out.root, plan.fan_out.children
    grandchild = plan.fan_out.grandchild
    family = (root, *children, grandchild)

    assert (plan.waves, plan.faulty) == (alone.waves, alone.faulty)
    assert len({session.thread_id for session in plan.sessions()}) == 2 + 2 + 14
    assert len({session.secret for session in plan.sessions()}) == 2 + 2 + 14
    assert {session.session_id for session in family} == {root.thread_id}
    assert {child.parent_id for child in children} == {root.thread_id}
    assert grandchild.parent_id in {child.thread_id for child in children}
    assert [turn.stands for session in family for turn in session.turns] == [False] + [True] * 14
    assert plan.requests - alone.requests == 2 * 15 + 7


def test_what_failed_is_asked_for_once_more_and_what_was_slow_is_not() -> None:
    plan = make_plan(seed=3, transport=RecallTransport.WS, sessions=10, rounds=1)
    met = [planned for planned in plan.exchanges() if planned.fault]
    again = [planned for planned in plan.exchanges() if planned.exchange.attempt == 2]

    assert {p.exchange.attempt for p in met} == {1}
    assert len(again) == sum(p.fault is not Fault.SLOW_READER for p in met)
