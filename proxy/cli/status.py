"""Command: `turnlane status` and `turnlane doctor`; each returns an exit code.

Doctor: everything that can be wrong around a turnlane, each with the command that mends it.

Each check looks at one thing, changes nothing, and says what it found; only the upstreams are asked
over the network. What cannot be looked into is a warning, never a pass.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from proxy.config.load import Config
from proxy.errors import ConfigError
from proxy.status.external_checks import outside
from proxy.status.finding import CheckContext, Finding, Level
from proxy.status.local_checks import inside, most_files
from proxy.status.overview import Sources, as_json, overview
from proxy.status.preflight import hindrance
from proxy.status.processes import listener_at, neighbours
from proxy.status.reachability import reach
from proxy.status.render import screen

_MARKS: Final = {
    Level.GOOD: ("ok", "green"),
    Level.WARNING: ("!!", "yellow"),
    Level.WRONG: ("XX", "bold red"),
}
_ABOUT_CELLS: Final = 10
_MEND_CELLS: Final = 3 + _ABOUT_CELLS + 1


def show_status(home: Path, *, json: bool) -> int:
    """0 when this turnlane serves, else 1."""
    hinders = partial(hindrance, home, os.environ, listener_at)
    seen = overview(home, Sources(environment=os.environ, wall=time.time, hindrance=hinders))
    if json:
        typer.echo(msgspec.json.encode(as_json(seen), enc_hook=str).decode())
    else:
        console = Console(highlight=False)
        blocks = "▇▁" if console.encoding.startswith("utf") else "#."
        _print_trimmed(screen(seen, None, columns=console.width, blocks=blocks), console)
    return 0 if seen.serving else 1


def show_doctor(home: Path, config: Config | ConfigError, file: Path | None, *, json: bool) -> int:
    """0 when nothing is wrong; warnings are not."""
    seen = overview(home, Sources(environment=os.environ, wall=time.time))
    patient = CheckContext(
        home=home,
        file=file,
        environment=os.environ,
        config=config,
        seen=seen,
        most_files=most_files(),
        listener=partial(listener_at, hung=seen.held_by),
        neighbours=neighbours,
        reach=reach,
    )
    console = Console(highlight=False)
    found = []
    for finding in examine(patient):
        found.append(finding)
        if not json:
            show_finding(finding, console)
    wrong = sum(each.level is Level.WRONG for each in found)
    if json:
        typer.echo(msgspec.json.encode([asdict(each) for each in found]).decode())
    else:
        warnings = sum(each.level is Level.WARNING for each in found)
        console.print(Text(f"\n{wrong} wrong, {warnings} to look at, {len(found)} checked"))
    return 1 if wrong else 0


def show_finding(finding: Finding, console: Console) -> None:
    """What mends it stands in one piece, however long, so that it can be copied."""
    mark, style = _MARKS[finding.level]
    line = Table.grid(padding=(0, 1, 0, 0))
    line.add_column()
    line.add_column(min_width=_ABOUT_CELLS, style="dim")
    line.add_column(overflow="fold")
    line.add_row(Text(mark, style), Text(finding.about), Text(finding.said))
    _print_trimmed(line, console)
    if finding.mend is not None:
        mend = Text.assemble(f"{'':{_MEND_CELLS}}", ("-> ", "dim"), (finding.mend, "bold"))
        console.print(mend, soft_wrap=True)


def _print_trimmed(what: RenderableType, console: Console) -> None:
    """Without the blanks up to the width of the table, which are in the way in a file."""
    with console.capture() as shown:
        console.print(what)
    console.file.writelines(f"{line.rstrip()}\n" for line in shown.get().splitlines())


def examine(patient: CheckContext) -> Iterator[Finding]:
    """Every finding, as it is made."""
    yield from inside(patient)
    yield from outside(patient)
