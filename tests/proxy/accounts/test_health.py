"""AccountHealth: what an attempt shows, and for how long it counts."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.accounts.health import AccountHealth, PersistedHealth
from proxy.accounts.usage import QuotaUsage
from proxy.accounts.verdict import HICCUP, NEUTRAL, SERVED, UNREACHABLE, Kind, Verdict
from proxy.accounts.view import ANY, AccountId, AccountView, Family, Standing, Window

NOW = 1_800_000_000.0
GPT = Family("gpt-5.5")
OTHER = Family("gpt-6-sol")
DAY = 86_400.0
THROTTLED = Verdict(kind=Kind.THROTTLED)
UNAUTHORIZED = Verdict(kind=Kind.UNAUTHORIZED)


def view(state: AccountHealth) -> AccountView:
    return state.view(AccountId("a"), None)


def standing(state: AccountHealth, now: float = NOW, family: Family = GPT) -> Standing:
    return view(state).standing(family, now)


def note(state: AccountHealth, *verdicts: Verdict, at: float = NOW) -> None:
    for verdict in verdicts:
        state.note(verdict, GPT, at, at)


def quota(seconds: float | None, family: Family = ANY) -> Verdict:
    retry_at = None if seconds is None else NOW + seconds
    return Verdict(kind=Kind.QUOTA, family=family, retry_at=retry_at)


def window(used: float, *, seconds: float = 3600.0, minutes: int | None = 300) -> Window:
    return Window(name="primary", used_percent=used, resets_at=NOW + seconds, minutes=minutes)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([HICCUP, HICCUP], Standing.READY),
        ([HICCUP, HICCUP, HICCUP], Standing.TROUBLED),
        ([HICCUP, HICCUP, SERVED, HICCUP, HICCUP], Standing.READY),
        ([HICCUP, HICCUP, NEUTRAL, HICCUP], Standing.TROUBLED),
        ([UNREACHABLE], Standing.TROUBLED),
        ([THROTTLED], Standing.TROUBLED),
    ],
)
def test_three_hiccups_in_a_row_are_trouble_and_one_failure_to_serve_is(
    verdicts: list[Verdict], expected: Standing
) -> None:
    state = AccountHealth()
    note(state, *verdicts)

    assert standing(state) is expected
    assert standing(AccountHealth(state.persisted())) is Standing.READY


def test_trouble_lasts_until_it_serves_however_long() -> None:
    state = AccountHealth()
    note(state, UNREACHABLE)
    later = NOW + 30 * DAY
    before = standing(state, later)

    state.answering(GPT, later)

    assert (before, standing(state, later)) == (Standing.TROUBLED, Standing.READY)


def test_an_old_stream_that_answers_says_nothing_of_what_came_after_it_began() -> None:
    state = AccountHealth()
    note(state, UNREACHABLE, quota(3600))

    state.answering(GPT, NOW - 1)

    assert standing(state) is Standing.SPENT


def test_a_failure_of_an_attempt_from_before_makes_the_wait_no_longer() -> None:
    state = AccountHealth()
    note(state, UNREACHABLE)
    state.note(UNREACHABLE, GPT, NOW - 1, NOW + 4)

    assert view(state).may_probe(GPT, NOW + 5)


def waits(state: AccountHealth, verdict: Verdict, times: int) -> list[float]:
    """How long each further probe has to wait, each of them failing."""
    found, now = [], NOW
    for _ in range(times):
        note(state, verdict, at=now)
        cooldown = view(state).trouble[ANY]
        found.append(cooldown.probe_at - now)
        now = cooldown.probe_at
    return found


def test_probes_become_rarer_up_to_a_minute() -> None:
    assert waits(AccountHealth(), UNREACHABLE, 7) == [5, 5, 10, 20, 40, 60, 60]
    assert waits(AccountHealth(), THROTTLED, 4) == [0, 5, 10, 20]


def test_a_throttling_that_says_for_how_long_is_heard() -> None:
    state = AccountHealth()
    note(state, replace(THROTTLED, retry_at=NOW + 30))

    assert not view(state).may_probe(GPT, NOW + 29)
    assert view(state).may_probe(GPT, NOW + 30)


def test_only_one_probe_at_a_time() -> None:
    state = AccountHealth()
    note(state, UNREACHABLE)
    state.begin_probe(GPT, NOW + 5)
    during = view(state).may_probe(GPT, NOW + 6)

    state.end_probe(GPT, NOW + 6)

    assert not during
    assert view(state).may_probe(GPT, NOW + 6)


def test_quota_is_away_until_its_reset() -> None:
    state = AccountHealth()
    note(state, quota(3600))

    assert standing(state, NOW + 3599) is Standing.SPENT
    assert standing(state, NOW + 3600) is Standing.READY


def test_quota_of_one_model_is_away_for_that_model_alone() -> None:
    state = AccountHealth()
    note(state, quota(3600, GPT))

    assert standing(state) is Standing.SPENT
    assert standing(state, family=OTHER) is Standing.READY


def test_a_refusal_says_more_about_its_end_than_full_windows_do() -> None:
    state = AccountHealth()
    note(state, quota(3600))
    state.learn(QuotaUsage(windows=(window(100, seconds=60),)), NOW)

    assert view(state).spent_until(GPT, NOW) == NOW + 3600


@pytest.mark.parametrize(
    ("windows", "seconds"),
    [((), 5 * 3600), ((window(10),), 5 * 3600), ((window(10, minutes=10_080),), 5 * DAY)],
    ids=["nothing known", "five hours", "a week"],
)
def test_a_hint_is_capped_at_the_longest_window(
    windows: tuple[Window, ...], seconds: float
) -> None:
    state = AccountHealth()
    state.learn(QuotaUsage(windows=windows), NOW)

    note(state, quota(5 * DAY))

    assert view(state).spent_until(GPT, NOW) == NOW + seconds


def test_an_account_that_serves_although_it_said_it_would_not_is_back() -> None:
    state = AccountHealth()
    note(state, quota(5 * DAY))

    note(state, SERVED, at=NOW + 300)

    assert standing(state, NOW + 300) is Standing.READY


def test_what_the_provider_says_itself_ends_a_hint_of_days() -> None:
    state = AccountHealth()
    note(state, quota(5 * DAY))

    state.refresh(QuotaUsage(windows=(window(0),)), NOW + 60)

    assert standing(state, NOW + 60) is Standing.READY


def test_a_report_without_windows_ends_nothing() -> None:
    state = AccountHealth()
    note(state, quota(5 * DAY))

    state.refresh(QuotaUsage(plan="plus"), NOW + 60)

    assert standing(state, NOW + 60) is Standing.SPENT


def test_a_refused_credential_may_be_tried_after_a_minute() -> None:
    state = AccountHealth()
    note(state, UNAUTHORIZED)
    early, late = view(state).may_probe(GPT, NOW + 59), view(state).may_probe(GPT, NOW + 60)

    state.answering(GPT, NOW + 60)

    assert (early, late) == (False, True)
    assert standing(state, NOW + 60) is Standing.READY


def test_a_refreshed_token_keeps_the_generation_and_another_credential_does_not() -> None:
    state = AccountHealth()
    state.adopt("one")
    note(state, quota(5 * DAY), UNREACHABLE, UNAUTHORIZED)
    state.adopt("one")
    state.adopt("")
    before = (state.generation, standing(state))

    state.adopt("two")

    assert before == (1, Standing.INVALID)
    assert (state.generation, standing(state)) == (2, Standing.READY)


def test_what_lasts_is_what_a_restart_finds() -> None:
    state = AccountHealth()
    state.adopt("one")
    state.learn(QuotaUsage(windows=(window(12),), plan="plus"), NOW)
    note(state, quota(3600), quota(3600, OTHER))
    state.begin_probe(GPT, NOW)
    state.pause(paused=True)

    again = AccountHealth(state.persisted())

    kept = state.persisted().spent
    assert kept.keys() == {ANY, OTHER}
    assert again.persisted() == replace(
        state.persisted(), spent={key: replace(each, probing=False) for key, each in kept.items()}
    )
    assert standing(again) is Standing.PAUSED


Step = Callable[[AccountHealth, float], object]
STEPS: dict[str, Step] = {
    "hiccup": lambda state, now: note(state, HICCUP, at=now),
    "unreachable": lambda state, now: note(state, UNREACHABLE, at=now),
    "throttled": lambda state, now: note(state, replace(THROTTLED, family=GPT), at=now),
    "unauthorized": lambda state, now: note(state, UNAUTHORIZED, at=now),
    "quota": lambda state, now: note(state, quota(3600, GPT), at=now),
    "served": lambda state, now: note(state, SERVED, at=now),
    "answering": lambda state, now: state.answering(GPT, now),
    "reached": lambda state, now: state.reached(now),
    "renewed": lambda state, _: state.renewed(),
    "delay": lambda state, now: state.delay(5, now),
    "invalidate": lambda state, now: state.invalidate(now + 60, now),
    "begin a probe": lambda state, now: state.begin_probe(GPT, now),
    "end a probe": lambda state, now: state.end_probe(GPT, now),
    "learn": lambda state, now: state.learn(QuotaUsage(windows=(window(now - NOW),)), now),
    "learn credits": lambda state, now: state.learn(QuotaUsage(credits=True), now),
    "refresh": lambda state, now: state.refresh(QuotaUsage(windows=(window(0),)), now),
    "another credential": lambda state, now: state.adopt(str(now)),
    "pause": lambda state, _: state.pause(paused=True),
    "go on": lambda state, _: state.pause(paused=False),
}


@given(st.lists(st.sampled_from(sorted(STEPS))))
def test_looking_after_every_step_shows_what_looking_once_does(steps: list[str]) -> None:
    watched, other = AccountHealth(), AccountHealth()
    for number, step in enumerate(steps):
        for state in (watched, other):
            STEPS[step](state, NOW + 10 * number)
        view(watched)

    assert view(watched) == view(other)


VERDICTS = st.sampled_from([SERVED, NEUTRAL, HICCUP, UNREACHABLE, THROTTLED, UNAUTHORIZED])


@given(st.lists(st.tuples(VERDICTS, st.floats(0, 1000))))
def test_no_wait_is_longer_than_a_minute(events: list[tuple[Verdict, float]]) -> None:
    state, now = AccountHealth(PersistedHealth()), NOW
    for verdict, pause in events:
        now += pause
        note(state, verdict, at=now)

    assert all(each.probe_at <= now + 60 for each in view(state).trouble.values())
    assert standing(state, now) in (Standing.READY, Standing.TROUBLED, Standing.INVALID)
