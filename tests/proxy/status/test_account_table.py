"""The table of accounts: what an operator reads, in 80 columns and in more."""

from dataclasses import replace
from datetime import UTC
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from proxy.accounts.statistics import AccountHour, AccountStatistics
from proxy.accounts.view import AccountId, Standing, Window
from proxy.status.account_table import account_table, clock_of, length, span
from tests.testkit.snapshots import Snapshot

NOW = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC, a Friday
HOUR = 3600.0
DAY = 24 * HOUR


def window(name: str, used: float, resets_in: float, minutes: int | None) -> Window:
    return Window(name=name, used_percent=used, resets_at=NOW + resets_in, minutes=minutes)


def statistics(
    name: str,
    standing: Standing = Standing.READY,
    *windows: Window,
    kind: str = "chatgpt",
    plan: str | None = "pro",
    resets_at: float | None = None,
    cooling: tuple[str, ...] = (),
    hour: AccountHour | None = None,
    running: int = 0,
) -> AccountStatistics:
    return AccountStatistics(
        id=AccountId(name),
        kind=kind,
        plan=plan,
        standing=standing,
        score=None,
        windows=windows,
        resets_at=resets_at,
        cooling_models=cooling,
        in_flight=running,
        bindings=14,
        last_hour=hour or AccountHour(),
    )


WORK = statistics(
    "work",
    Standing.READY,
    window("primary", 84, HOUR, 300),
    window("secondary", 12, 5 * DAY, 10_080),
    cooling=("gpt-5-mini",),
    hour=AccountHour(turns=120, cold_starts=3, cached_tokens=92, uncached_tokens=8),
    running=2,
)
SPENT = statistics(
    "home", Standing.SPENT, window("primary", 100, 7800, 300), resets_at=NOW + 7800, plan=None
)


def rendered(*accounts: AccountStatistics, columns: int = 80, blocks: str = "▇▁") -> str:
    console = Console(file=StringIO(), width=columns, color_system=None)
    console.print(account_table(accounts, NOW, UTC, columns=columns, blocks=blocks))
    output: StringIO = console.file  # type: ignore[assignment]
    return output.getvalue()


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("columns", [80, 120])
def test_each_account_takes_a_few_lines(columns: int, snapshot: Snapshot) -> None:
    lines = rendered(WORK, SPENT, columns=columns).splitlines()

    snapshot("accounts", *(line.rstrip() for line in lines))


def test_every_state_has_words(snapshot: Snapshot) -> None:
    states = [statistics(f"is-{state}", state, window("p", 1, HOUR, 60)) for state in Standing]
    lines = rendered(*states, columns=62).splitlines()

    snapshot("accounts", *(line.rstrip() for line in lines))


def test_what_is_special_about_an_account_is_shown_beside_it(snapshot: Snapshot) -> None:
    problem = "auth.json is missing: sign in again"
    same = (AccountId("two"), AccountId("three"))
    known = (
        replace(statistics("one", Standing.INVALID), problem=problem),
        replace(statistics("two", Standing.TROUBLED), problem=problem),
        replace(statistics("three"), models=("gpt-5*", "o4"), same_as=same),
        statistics("key", kind="api_key", plan=None),
    )
    lines = rendered(*known, columns=140).splitlines()

    snapshot("accounts", *(line.rstrip() for line in lines))


@pytest.mark.parametrize(
    ("columns", "titles"),
    [
        (30, "account state"),
        (50, "account state usage"),
        (62, "account state usage now"),
        (74, "account state usage now last hour"),
    ],
)
def test_a_narrow_terminal_keeps_the_name_and_the_state(columns: int, titles: str) -> None:
    lines = rendered(WORK, SPENT, columns=columns).splitlines()

    assert words(lines[0]) == titles
    assert lines[2].split()[:2] == ["work", "ready"]
    assert max(map(len, lines)) <= columns


def test_a_name_is_neither_cut_nor_read_as_markup() -> None:
    name = "a-rather-long-name-of-an-account-0123456"
    folded = "".join(line.split("  ")[0] for line in rendered(statistics(name)).splitlines()[2:])

    assert name in folded
    assert "[bold]" in rendered(statistics("x", plan="[bold]pro"), columns=120)


@given(
    used=st.floats(0, 100),
    names=st.lists(st.text("abc-", min_size=1, max_size=40), max_size=4),
    columns=st.sampled_from([40, 50, 62, 74, 80, 100, 120]),
)
def test_no_line_is_longer_than_the_terminal(used: float, names: list[str], columns: int) -> None:
    accounts = [
        statistics(
            name,
            Standing.SPENT,
            window("primary", used, 3 * DAY, 300),
            resets_at=NOW + 3 * DAY,
            cooling=("gpt-5-codex-mini-long",),
            hour=AccountHour(turns=99_999, cached_tokens=1),
            running=256,
        )
        for name in names
    ]

    assert max(map(len, rendered(*accounts, columns=columns).splitlines()), default=0) <= columns
    assert "…" not in rendered(*accounts, columns=columns)


@pytest.mark.parametrize(
    ("used", "bar"), [(0, "....."), (0.4, "#...."), (50, "##..."), (99.9, "####."), (130, "#####")]
)
def test_a_bar_is_full_when_the_window_is_and_empty_when_it_is_unused(
    used: float, bar: str
) -> None:
    known = statistics("one", Standing.READY, window("primary", used, HOUR, 300))

    assert f"{bar} " in rendered(known, columns=120, blocks="#.")


@pytest.mark.parametrize(
    ("resets_in", "text"),
    [(60, "08:01"), (15.9 * HOUR, "23:54"), (16 * HOUR, "Sat 00:00"), (7 * DAY, "22 Jan")],
)
def test_a_time_says_as_much_of_its_day_as_it_has_to(resets_in: float, text: str) -> None:
    assert clock_of(NOW + resets_in, NOW, UTC) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (0.2, "1 s"),
        (61, "2 m"),
        (3600, "1 h 0 m"),
        (7800, "2 h 10 m"),
        (DAY * 3.5, "3 d 12 h"),
    ],
)
def test_a_span_has_two_units_at_most(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("minutes", "text"), [(None, ""), (300, "5h"), (10_080, "7d"), (1440, "1d"), (90, "90m")]
)
def test_a_window_is_named_by_its_length(minutes: int | None, text: str) -> None:
    assert length(minutes) == text
