"""The simulation: the same seed is the same run, its books add up, and the old rule does hop."""

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from itertools import islice
from pathlib import Path
from random import Random

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from harness.simulate.load import Load, SimTurn, turns
from harness.simulate.pool import Provider, Quota, SimAccount, open_accounts
from harness.simulate.report import Rule, RuleTally, document, plot, report
from harness.simulate.simulate import (
    BEGIN,
    Chosen,
    RuleMemory,
    hop_to_cooler,
    main,
    simulate,
    simulate_all,
)
from proxy.cli.main import app

SHORT = Load(hours=0.5, conversations=6)
PROVIDER = Provider()
TIGHT = replace(PROVIDER, weekly_tokens=4e6, five_hour_tokens=4e6)
"""Small enough to be spent within half an hour."""


@pytest.fixture(scope="module", name="tallies")
def fixture_tallies() -> dict[Rule, RuleTally]:
    return simulate_all(SHORT, PROVIDER, 1)


def asked(
    load: Load, provider: Provider, seed: int = 1
) -> tuple[RuleTally, list[tuple[SimTurn, bool]]]:
    """Every turn as it was asked for under the old rule, and whether an account was chosen."""
    calls: list[tuple[SimTurn, bool]] = []

    def noting(turn: SimTurn, accounts: list[SimAccount], seen: RuleMemory, now: float) -> Chosen:
        chosen = hop_to_cooler(turn, accounts, seen, now)
        calls.append((turn, chosen.account is not None))
        return chosen

    return simulate(noting, load, provider, seed), calls


def account(*percents: float, told: Provider = PROVIDER) -> SimAccount:
    quotas = tuple(
        Quota(
            name=f"{number}",
            size_tokens=1e6,
            length_seconds=100,
            used_tokens=1e4 * used,
            resets_at=BEGIN + 100,
        )
        for number, used in enumerate(percents)
    )
    return SimAccount("a", quotas, Random(1), told)


def test_the_same_seed_is_the_same_run_and_another_is_not(tallies: dict[Rule, RuleTally]) -> None:
    assert simulate_all(SHORT, PROVIDER, 1) == tallies
    assert simulate_all(SHORT, PROVIDER, 2) != tallies


def test_every_turn_asked_for_is_either_served_or_refused() -> None:
    tally, calls = asked(SHORT, TIGHT)

    assert tally.refused > 0
    assert tally.turns_served + tally.refused == len(calls)
    assert tally.turns_served == sum(served for _, served in calls)


@pytest.mark.parametrize("provider", [PROVIDER, TIGHT])
def test_cached_and_uncached_are_the_tokens_of_the_turns_served(provider: Provider) -> None:
    tally, calls = asked(SHORT, provider)
    tokens = sum(turn.tokens for turn, served in calls if served)

    assert tally.cached_tokens + tally.uncached_tokens == tokens
    assert sum(tally.by_slot) == tally.uncached_tokens
    assert 0 <= tally.sent_again < tally.uncached_tokens


def test_without_a_refusal_every_rule_is_asked_the_same(tallies: dict[Rule, RuleTally]) -> None:
    served = {tally.turns_served for tally in tallies.values()}
    tokens = {tally.cached_tokens + tally.uncached_tokens for tally in tallies.values()}

    assert len(served) == len(tokens) == 1
    assert all(tally.refused == 0 for tally in tallies.values())


def test_the_old_rule_hops_and_a_bound_thread_stays() -> None:
    level = replace(PROVIDER, start_percent=(90.0, 90.0), weekly_tokens=100e6)
    tallies = simulate_all(SHORT, level, 1)
    hop, kept = tallies["hop_to_cooler"], tallies["cache_first"]

    assert hop.moves > hop.turns_served / 2
    assert kept.moves == tallies["capacity_first"].moves == 0
    assert hop.uncached_tokens > 2 * kept.uncached_tokens
    assert hop.sent_again > 20 * max(1, kept.sent_again)


def test_a_turn_that_waits_for_a_reset_is_asked_for_again_and_served() -> None:
    soon = replace(TIGHT, start_percent=(99.9, 99.9), weekly_tokens=40e9, five_hour_tokens=1e6)
    tallies = simulate_all(replace(SHORT, hours=6), soon, 1)

    for tally in tallies.values():
        assert tally.refused > 0
        assert tally.turns_served > 0
        assert any(tally.by_slot[-8:])


def test_a_thread_whose_account_is_spent_moves_under_every_rule() -> None:
    for tally in simulate_all(SHORT, TIGHT, 1).values():
        assert tally.moves > 0


def test_turns_of_one_prompt_each_begin_with_the_one_before() -> None:
    some = list(islice(turns(Load(), 1, 0), 400))
    sent: dict[str, int] = {}
    for turn in some:
        assert turn.tokens == sent.get(turn.prompt, 0) + turn.new_tokens
        sent[turn.prompt] = turn.tokens

    assert max(turn.tokens for turn in some) <= Load().longest_tokens
    assert any(turn.parent for turn in some)
    assert len({turn.prompt for turn in some}) > len({turn.thread for turn in some}) > 2


def test_the_load_is_the_size_of_the_incident() -> None:
    def lane(number: int) -> Iterator[SimTurn]:
        at = 0.0
        for turn in turns(Load(), 1, number):
            if at > 13 * 3600:
                return
            at += Load().turn_seconds + turn.rest_seconds
            yield turn

    every = [turn for number in range(Load().conversations) for turn in lane(number)]

    assert len(every) == pytest.approx(15_607, rel=0.05)
    assert sum(turn.tokens for turn in every) == pytest.approx(1.9e9, rel=0.05)


def test_an_account_caches_a_prompt_until_it_has_not_been_used_for_a_while() -> None:
    cache = account(0.0, told=replace(PROVIDER, kept_seconds=(600.0, 600.0)))

    assert cache.serve("p", 100, BEGIN) == 0
    assert cache.serve("p", 150, BEGIN + 600) == 100
    assert cache.serve("q", 150, BEGIN + 600) == 0
    assert cache.serve("p", 200, BEGIN + 1200) == 150
    assert cache.serve("p", 250, BEGIN + 1801) == 0
    assert cache.serve("p", 250, BEGIN + 1802) == 250


def test_what_was_cached_counts_less_and_a_reset_forgives_all() -> None:
    one = account(50.0, 20.0)
    one.serve("p", 100_000, BEGIN)
    one.serve("p", 200_000, BEGIN + 1)

    assert one.percents(BEGIN + 2) == pytest.approx([71.0, 41.0])
    assert one.score(BEGIN + 2) == pytest.approx(71.0)
    assert one.percents(BEGIN + 100) == [0.0, 0.0]
    assert {quota.resets_at for quota in one.quotas} == {BEGIN + 200}


def test_an_account_is_spent_until_its_last_full_window_resets() -> None:
    one = account(100.0, 99.0)

    assert one.spent_until(BEGIN) == BEGIN + 100
    assert one.spent_until(BEGIN + 100) is None


def test_usage_can_be_told_in_whole_points() -> None:
    assert account(50.9, told=replace(PROVIDER, whole_points=True)).score(BEGIN) == 50.0
    assert account(50.9).score(BEGIN) == pytest.approx(50.9)


@pytest.mark.parametrize("seed", range(5))
def test_accounts_start_nearly_full(seed: int) -> None:
    accounts = open_accounts(PROVIDER, seed, BEGIN)

    assert len(accounts) == 5
    assert all(80 <= one.score(BEGIN) <= 97 for one in accounts)


def test_the_document_has_the_figures_of_every_rule(tallies: dict[Rule, RuleTally]) -> None:
    shown = document(tallies, SHORT, PROVIDER, 1)
    hop, kept = shown["rules"]["hop_to_cooler"], shown["rules"]["cache_first"]

    assert set(shown["rules"]) == {"hop_to_cooler", "capacity_first", "cache_first"}
    for figures in shown["rules"].values():
        assert set(figures) == {
            "uncached_tokens",
            "cached_tokens",
            "moves",
            "refused",
            "turns_served",
        }
    ratio = hop["uncached_tokens"] / kept["uncached_tokens"]
    assert shown["ratio_uncached"] == pytest.approx(ratio, abs=0.01)


def test_the_assumptions_are_shown_beside_the_results(tallies: dict[Rule, RuleTally]) -> None:
    console = Console(width=80, record=True, file=StringIO())
    console.print(report(tallies, document(tallies, SHORT, PROVIDER, 7)))
    text = console.export_text()

    assert "seed 7" in text
    for told in ("capacity_first", "kept_seconds 600 to 3,600", "whole_points no", "hours 0.50"):
        assert told in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_the_plot_rises_to_the_total() -> None:
    one = RuleTally(hours=1)
    turn = SimTurn(thread="t", prompt="p", tokens=10_000_000, new_tokens=1, rest_seconds=0)
    for quarter in range(4):
        one.serve(turn, 0, 900.0 * quarter, moved=False)
    lines = plot({"cache_first": one}, rows=4).splitlines()

    assert lines[2:7] == [
        "     40 |   c",
        "     30 |  c",
        "     20 | c",
        "     10 |c",
        "      0 |",
    ]


def test_the_command_writes_what_it_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    code = main(["--seed", "3", "--json", str(file)], SHORT)
    written = msgspec.json.decode(file.read_bytes())

    assert code == 0
    assert (written["seed"], written["assumptions"]["load"]["hours"]) == (3, 0.5)
    assert f"{written['ratio_uncached']} times the uncached tokens" in capsys.readouterr().out


def test_a_file_that_cannot_be_written_exits_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--json", str(tmp_path)], SHORT) == 1
    assert "directory" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["--seed x", "--rounds 3", "--json no/such/folder/file"])
def test_a_wrong_command_line_exits_with_2(wrong: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(wrong.split())

    assert ended.value.code == 2


@pytest.mark.parametrize(("option", "code"), [("--help", 0), ("--rounds", 2)])
def test_turnlane_hands_the_command_line_on(option: str, code: int) -> None:
    ended = CliRunner().invoke(app, ["simulate", option])

    assert ended.exit_code == code
    assert "usage: turnlane simulate" in ended.output
