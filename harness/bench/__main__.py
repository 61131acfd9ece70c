"""`make bench`: floor, turnlane and peers against one scripted upstream, interleaved, as ratios.

Linux only: it reads /proc. Wall times of one run say little on a shared machine; CPU of the whole
process tree as a ratio to what ran in the same minutes says much.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from harness.bench import decisions, memory, meter, profile, targets
from harness.bench.report import Incomparable, Sample, compared, document, table
from harness.bench.targets import Recipe, Running
from harness.child import python, with_path

EVENTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One kind of load. `pause_seconds` between two events; 0 is all at once."""

    name: str
    transport: str
    pause_seconds: float = 0.0
    sessions: int = 32
    turns: int = 10
    kb: int = 30
    stagger_seconds: float = 0.0


WIDE: dict[str, Any] = {"pause_seconds": 0.01, "sessions": 64, "turns": 4, "stagger_seconds": 0.02}
CELLS = (
    Cell(name="burst HTTP", transport="http"),
    Cell(name="burst WS", transport="ws"),
    Cell(name="paced HTTP", transport="http", pause_seconds=0.02, turns=2),
    Cell(name="paced WS", transport="ws", pause_seconds=0.02, turns=2),
    Cell(name="burst HTTP 600 kB", transport="http", turns=4, kb=600),
    Cell(name="burst WS 600 kB", transport="ws", turns=4, kb=600),
    Cell(name="idle HTTP", transport="http", sessions=1, turns=50),
    Cell(name="idle WS", transport="ws", sessions=1, turns=50),
    Cell(name="narrow HTTP", transport="http", **{**WIDE, "sessions": 1}),
    Cell(name="narrow WS", transport="ws", **{**WIDE, "sessions": 1}),
    Cell(name="wide HTTP", transport="http", **WIDE),
    Cell(name="wide WS", transport="ws", **WIDE),
)


def main() -> int:
    options, out = _options(), Console(width=150)
    if options.admission:
        out.print(decisions.table(decisions.costs()))
        return 0
    if options.memory:
        out.print(memory.table(memory.measured()))
        return 0
    cells = [cell for cell in CELLS if options.cells in cell.name]
    if options.profile:
        for cell in cells:
            out.print(_profile(cell))
        return 0
    recipes = [targets.FLOOR, targets.TURNLANE]
    if (peer := targets.opencodex(options.peers / "opencodex")) is not None:
        recipes.append(peer)
    recipes += [targets.other(*named.split("=", 1)) for named in options.peer]
    found = document(meter.machine(), _measure(cells, recipes, options.rounds))
    out.print(table(found))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1), "utf-8")
    if options.against is not None:
        try:
            out.print(compared(json.loads(options.against.read_text("utf-8")), found))
        except Incomparable as no:
            out.print(f"not compared: {no}")
            return 2
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--cells", default="", help="only those whose name has this in it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--peers", type=Path, default=Path("peers"), help="where peers are installed"
    )
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND LINE")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--against", type=Path, help="an earlier --json of this machine")
    parser.add_argument("--profile", action="store_true", help="where the time goes, instead")
    parser.add_argument("--memory", action="store_true", help="what memory becomes, instead")
    parser.add_argument("--admission", action="store_true", help="what a decision costs, instead")
    return parser.parse_args()


def _measure(
    cells: list[Cell], recipes: list[Recipe], rounds: int
) -> dict[str, dict[str, list[Sample]]]:
    """Each round loads every target once, so that what the machine does meanwhile hits all."""
    figures: dict[str, dict[str, list[Sample]]] = {}
    for pause in sorted({cell.pause_seconds for cell in cells}):
        with TemporaryDirectory() as folder, ExitStack() as stack:
            port = stack.enter_context(targets.upstream(EVENTS, pause))
            started = [
                stack.enter_context(targets.running(recipe, port, Path(folder) / recipe.name))
                for recipe in recipes
            ]
            for cell in cells:
                if cell.pause_seconds == pause:
                    figures[cell.name] = _rounds(cell, started, rounds)
    return {cell.name: figures[cell.name] for cell in cells}


def _rounds(cell: Cell, started: list[Running], rounds: int) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = defaultdict(list)
    for number in range(rounds + 1):  # the first one warms up
        for target in started:
            sample = _load(cell, target)
            if number:
                samples[target.recipe.name].append(sample)
    return samples


def _load(cell: Cell, target: Running) -> Sample:
    """The floor carries HTTP whatever the cell: the bytes are the same."""
    transports = target.recipe.transports
    transport = cell.transport if cell.transport in transports else transports[0]
    before = meter.cpu_seconds(target.pid)
    seen = _clients(cell, transport, target.port, target.recipe.model)
    spent = meter.cpu_seconds(target.pid) - before
    if seen["errors"]:
        raise SystemExit(f"{target.recipe.name}, {cell.name}: {seen['errors'][0]}")
    return Sample(
        cpu_ms=spent * 1000 / (cell.sessions * cell.turns),
        first_ms=seen["first_ms"],
        delay_p99_ms=seen["delay_p99_ms"],
        rss_mb=meter.rss_mb(target.pid),
    )


def _clients(cell: Cell, transport: str, port: int, model: str) -> dict[str, Any]:
    command = python("harness.bench.load", transport, str(port))
    command += [f"--sessions={cell.sessions}", f"--turns={cell.turns}", f"--kb={cell.kb}"]
    if cell.stagger_seconds:  # what is timed are events in mid-stream, not a common start
        command += [f"--stagger={cell.stagger_seconds}", "--timed"]
    command.append(f"--model={model}")
    seen: dict[str, Any] = json.loads(subprocess.check_output(command, env=with_path(os.environ)))
    return seen


def _profile(cell: Cell) -> Table:
    with TemporaryDirectory() as folder, targets.upstream(EVENTS, cell.pause_seconds) as upstream:
        port = targets.free_port()
        child = profile.start(port, upstream, Path(folder))
        targets.wait_listening(port, child, Path(folder))
        _clients(cell, cell.transport, port, "bench")
        spent = profile.stop(child, Path(folder))
    shown = Table("part", "ms a turn", title=f"{cell.name}: own time under cProfile, its start too")
    for part, seconds in spent.items():
        shown.add_row(part, f"{seconds * 1000 / (cell.sessions * cell.turns):.2f}")
    return shown


if __name__ == "__main__":
    sys.exit(main())
