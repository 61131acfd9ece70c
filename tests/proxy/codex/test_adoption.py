"""What evidence says about adoption, and which evidence outranks which."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.codex.adoption import Adoption, CodexProcess, CodexRoute, Evidence, State, judge

SINCE = 1000.5
OURS = CodexRoute(ours=True, since=SINCE)
OLD = CodexProcess(pid=1, kind="app-server", started=900.0)
YOUNG = CodexProcess(pid=2, kind="cli", started=1001.0)
DARK = CodexProcess(pid=3, kind="cli", started=None)


def judged(
    *clients: CodexProcess,
    routing: CodexRoute = OURS,
    walked: bool = True,
    last_turn: float | None = None,
    now: float = 2000.0,
) -> Adoption:
    return judge(
        Evidence(routing=routing, clients=clients, walked=walked, last_turn=last_turn, now=now)
    )


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (judged(), State.ADOPTED),
        (judged(YOUNG), State.ADOPTED),
        (judged(YOUNG, OLD), State.PENDING),
        (judged(DARK), State.UNKNOWN),
        (judged(YOUNG, DARK), State.UNKNOWN),
        (judged(OLD, DARK), State.PENDING),
        (judged(walked=False), State.UNKNOWN),
        (judged(YOUNG, walked=False), State.UNKNOWN),
        (judged(OLD, walked=False), State.PENDING),
        (judged(last_turn=1001.0), State.SEEN),
        (judged(last_turn=1000.0), State.ADOPTED),
        (judged(OLD, last_turn=1000.0), State.PENDING),
        (judged(OLD, DARK, walked=False, last_turn=1001.0), State.SEEN),
        (judged(OLD, routing=CodexRoute(ours=False)), State.NOT_APPLICABLE),
        (judged(YOUNG, routing=CodexRoute(ours=None)), State.UNKNOWN),
        (judged(YOUNG, routing=CodexRoute(ours=True)), State.UNKNOWN),
        (judged(YOUNG, now=900.0), State.UNKNOWN),
        (judged(YOUNG, now=1000.0), State.ADOPTED),
        (judged(OLD, routing=replace(OURS, exact=False)), State.UNKNOWN),
        (judged(YOUNG, routing=replace(OURS, exact=False)), State.ADOPTED),
        (judged(OLD, routing=replace(OURS, exact=False), last_turn=1001.0), State.SEEN),
    ],
)
def test_the_strongest_evidence_decides(found: Adoption, state: State) -> None:
    assert found.state is state


@pytest.mark.parametrize(
    ("started", "stale"), [(999.99, True), (1000.0, False), (1000.5, False), (1001.0, False)]
)
def test_a_client_of_the_same_second_is_not_stale(started: float, stale: bool) -> None:
    found = judged(CodexProcess(pid=9, kind="cli", started=started))

    assert bool(found.stale) == stale
    assert found.state is (State.PENDING if stale else State.ADOPTED)


def test_an_empty_list_is_a_weak_inference_and_says_so() -> None:
    assert judged().weak
    assert "weak" in judged().why
    assert not judged(YOUNG).weak
    assert not judged(walked=False).weak


def test_stale_and_unreadable_clients_are_named_whatever_the_state() -> None:
    seen = judged(OLD, YOUNG, DARK, last_turn=1500.0)

    assert (seen.state, seen.stale, seen.unreadable) == (State.SEEN, (OLD,), (DARK,))


def test_why_codex_goes_elsewhere_is_passed_on() -> None:
    assert judged(routing=CodexRoute(ours=False, why="to the provider")).why == "to the provider"
    assert judged(routing=CodexRoute(ours=None, why="unreadable")).why == "unreadable"


clients = st.builds(
    CodexProcess,
    pid=st.integers(1, 9),
    kind=st.just("cli"),
    started=st.none() | st.floats(0, 20),
)
evidence = st.builds(
    Evidence,
    routing=st.builds(
        CodexRoute,
        ours=st.sampled_from([True, True, True, False, None]),
        why=st.just(""),
        since=st.floats(0, 20) | st.floats(0, 20) | st.none(),
        exact=st.booleans(),
    ),
    clients=st.lists(clients, max_size=4).map(tuple),
    walked=st.booleans(),
    last_turn=st.none() | st.floats(0, 30),
    now=st.floats(10, 30),
)


@given(evidence)
def test_adopted_needs_every_client_to_be_known_and_young(given_evidence: Evidence) -> None:
    since = given_evidence.routing.since
    young = all(
        client.started is not None and since is not None and int(client.started) >= int(since)
        for client in given_evidence.clients
    )

    if judge(given_evidence).state is State.ADOPTED:
        assert given_evidence.routing.ours is True
        assert given_evidence.walked
        assert since is not None
        assert young


@given(evidence, clients)
def test_one_client_more_never_makes_it_look_better(
    given_evidence: Evidence, client: CodexProcess
) -> None:
    """Except that the first one turns a weak inference into a sound one: the same state."""
    order = [State.ADOPTED, State.UNKNOWN, State.PENDING]
    before = judge(given_evidence)
    after = judge(replace(given_evidence, clients=(*given_evidence.clients, client)))

    if before.state in order:
        assert order.index(after.state) >= order.index(before.state)
    else:
        assert after.state is before.state


@given(evidence)
def test_a_failed_walk_is_never_adopted(given_evidence: Evidence) -> None:
    found = judge(replace(given_evidence, walked=False))

    assert found.state is not State.ADOPTED


@given(evidence, st.floats(0.001, 100))
def test_a_turn_after_the_routing_outranks_every_process(
    given_evidence: Evidence, later: float
) -> None:
    since = given_evidence.routing.since
    assume(given_evidence.routing.ours and since is not None and since <= given_evidence.now)
    assert since is not None
    found = judge(replace(given_evidence, last_turn=since + later))

    assert found.state is State.SEEN
    assert found.stale == judge(replace(given_evidence, last_turn=None)).stale


@given(evidence)
def test_where_codex_goes_elsewhere_no_process_matters(given_evidence: Evidence) -> None:
    elsewhere = replace(given_evidence, routing=CodexRoute(ours=False))

    assert judge(elsewhere) == judge(replace(elsewhere, clients=(), walked=True, last_turn=None))
