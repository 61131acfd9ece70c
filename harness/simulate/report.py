"""PURE what a simulation counted: the tallies, a JSON document, a table and a plot of them."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from textwrap import wrap
from typing import Any, Final, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.simulate.load import Load, SimTurn
from harness.simulate.pool import HOUR_SECONDS, Provider

Rule = Literal["hop_to_cooler", "capacity_first", "cache_first"]

SLOTS_AN_HOUR: Final = 4
PLOT_ROWS: Final = 12
WIDTH: Final = 79
MILLION: Final = 1e6
MARKS: Final[Mapping[Rule, str]] = {"hop_to_cooler": "h", "capacity_first": "o", "cache_first": "c"}


@dataclass(slots=True, kw_only=True)
class RuleTally:
    """Counts of one rule. `conversations_uncached` leaves the one-off sub-agents out."""

    hours: float
    uncached_tokens: int = 0
    cached_tokens: int = 0
    new_tokens: int = 0
    conversations_uncached: int = 0
    moves: int = 0
    refused: int = 0
    turns_served: int = 0
    by_slot: list[int] = field(default_factory=list)
    """Uncached tokens, a quarter of an hour each."""

    def __post_init__(self) -> None:
        self.by_slot = [0] * max(1, round(self.hours * SLOTS_AN_HOUR))

    def refuse(self) -> None:
        self.refused += 1

    def serve(self, turn: SimTurn, cached: int, at: float, *, moved: bool) -> None:
        uncached = turn.tokens - cached
        self.turns_served += 1
        self.moves += moved
        self.cached_tokens += cached
        self.uncached_tokens += uncached
        self.new_tokens += turn.new_tokens
        if turn.parent is None:
            self.conversations_uncached += uncached
        slot = int(at / HOUR_SECONDS * SLOTS_AN_HOUR)
        self.by_slot[min(slot, len(self.by_slot) - 1)] += uncached

    @property
    def sent_again(self) -> int:
        """Uncached although it had been sent before: what routing and idleness cost."""
        return self.uncached_tokens - self.new_tokens

    @property
    def uncached_a_turn(self) -> float:
        return self.uncached_tokens / max(1, self.turns_served)


def document(
    tallies: Mapping[Rule, RuleTally], load: Load, provider: Provider, seed: int
) -> dict[str, Any]:
    """The run as JSON."""
    hop, kept = tallies["hop_to_cooler"], tallies["cache_first"]
    return {
        "seed": seed,
        "ratio_uncached": _ratio(hop.uncached_tokens, kept.uncached_tokens),
        "ratio_uncached_a_turn": _ratio(hop.uncached_a_turn, kept.uncached_a_turn),
        "ratio_uncached_conversations": _ratio(
            hop.conversations_uncached, kept.conversations_uncached
        ),
        "ratio_sent_again": _ratio(hop.sent_again, kept.sent_again),
        "rules": {
            rule: {
                "uncached_tokens": tally.uncached_tokens,
                "cached_tokens": tally.cached_tokens,
                "moves": tally.moves,
                "refused": tally.refused,
                "turns_served": tally.turns_served,
            }
            for rule, tally in tallies.items()
        },
        "sent_again_tokens": {rule: tally.sent_again for rule, tally in tallies.items()},
        "assumptions": {"load": asdict(load), "provider": asdict(provider)},
    }


def _ratio(one: float, other: float) -> float:
    return round(one / max(1.0, other), 2)


def report(tallies: Mapping[Rule, RuleTally], shown: Mapping[str, Any]) -> RenderableType:
    """The run as a terminal shows it."""
    title = f"turnlane simulate, seed {shown['seed']}; tokens in millions"
    table = Table(title=title, title_justify="left")
    table.add_column("rule", no_wrap=True)
    for column in ("uncached", "again", "cached", "moves", "refused", "served"):
        table.add_column(column, justify="right", no_wrap=True)
    for rule, tally in tallies.items():
        tokens = (tally.uncached_tokens, tally.sent_again, tally.cached_tokens)
        table.add_row(
            rule,
            *(f"{count / MILLION:,.0f}" for count in tokens),
            *(f"{count:,}" for count in (tally.moves, tally.refused, tally.turns_served)),
        )
    lines = [*_verdict(shown), "", plot(tallies), "", "assumed:", *_assumptions(shown)]
    return Group(table, Text("\n".join(lines), no_wrap=True, overflow="ignore"))


def _verdict(shown: Mapping[str, Any]) -> Iterator[str]:
    """The ratios in words: the whole, and what is left without what no rule can help."""
    yield "hop_to_cooler against cache_first:"
    yield f"  {shown['ratio_uncached']:8} times the uncached tokens"
    yield f"  {shown['ratio_uncached_a_turn']:8} times, for each turn served"
    yield f"  {shown['ratio_uncached_conversations']:8} times, without one-off sub-agents: no rule"
    yield f"  {'':8} finds those in a cache"
    yield f"  {shown['ratio_sent_again']:8} times the tokens that had been sent before ('again')"


def plot(tallies: Mapping[Rule, RuleTally], rows: int = PLOT_ROWS) -> str:
    """Uncached tokens so far, by time; where rules meet, the last named is seen."""
    curves = {rule: list(accumulate(tally.by_slot)) for rule, tally in tallies.items()}
    top = max(1, *(curve[-1] for curve in curves.values()))
    width = max(len(curve) for curve in curves.values())
    grid = [[" "] * width for _ in range(rows + 1)]
    for rule, curve in curves.items():
        for column, total in enumerate(curve):
            grid[rows - round(rows * total / top)][column] = MARKS[rule]
    lines = [
        f"{top * (rows - row) / rows / MILLION:7,.0f} |{''.join(cells).rstrip()}"
        for row, cells in enumerate(grid)
    ]
    hours = "".join(f"{hour:<{SLOTS_AN_HOUR}}" for hour in range(-(-width // SLOTS_AN_HOUR) + 1))
    legend = ", ".join(f"{MARKS[rule]} {rule}" for rule in curves)
    return "\n".join(
        [
            f"uncached tokens so far, in millions, by hour\n{legend}",
            *lines,
            f"{'':8} {hours}".rstrip(),
        ]
    )


def _assumptions(shown: Mapping[str, Any]) -> Iterator[str]:
    for part, values in shown["assumptions"].items():
        told = (f"{name} {_plain(value)}" for name, value in values.items())
        yield from wrap(f"{part}: {', '.join(told)}", WIDTH, subsequent_indent="  ")


def _plain(value: float | bool | tuple[float, ...]) -> str:
    if isinstance(value, tuple):
        return " to ".join(map(_plain, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.10g}" if isinstance(value, int) or value == round(value) else f"{value:,.2f}"
