"""`turnlane status` and `turnlane doctor`: what they print; each returns its exit code.

Each check of the doctor looks at one thing, changes nothing, and says what it found; only the
upstreams are asked over the network. What cannot be inspected is a warning, never a pass.
"""

import os
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.cli.common import bar_of, print_json, print_trimmed
from proxy.codex.place import Environment
from proxy.errors import ConfigError
from proxy.status.overview import as_json, overview
from proxy.status.render import screen

if TYPE_CHECKING:
    from proxy.config.load import Config
    from proxy.status.finding import Finding

_MARKS: Final = {"good": ("ok", "green"), "warning": ("!!", "yellow"), "wrong": ("XX", "bold red")}
_ABOUT_CELLS: Final = 10
_MEND_CELLS: Final = 3 + _ABOUT_CELLS + 1


def show_status(home: Path, *, json: bool) -> int:
    """Print the overview; 0 when this turnlane serves, else 1."""
    place = Environment(home=home, environment=os.environ)
    seen = overview(place, partial(_hindrance, home))
    if json:
        print_json(as_json(seen))
    else:
        console = Console(highlight=False)
        columns, blocks = console.width, bar_of(console)
        print_trimmed(screen(seen, None, columns=columns, blocks=blocks), console)
    return 0 if seen.serving else 1


def _hindrance(home: Path) -> str | None:
    """Return why turnlane could not be started here; imported only if it does not run."""
    from proxy.status.preflight import hindrance
    from proxy.status.processes import listener_at

    return hindrance(home, os.environ, listener_at)


def show_doctor(
    home: Path, config: "Config | ConfigError", file: Path | None, *, json: bool
) -> int:
    """Print every finding; 0 when nothing is wrong, which a warning is not."""
    from proxy.status.external_checks import outside, reach
    from proxy.status.finding import CheckContext, Level
    from proxy.status.local_checks import inside, most_files
    from proxy.status.processes import listener_at, neighbours

    seen = overview(Environment(home=home, environment=os.environ))
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
    for finding in chain(inside(patient), outside(patient)):
        found.append(finding)
        if not json:
            show_finding(finding, console)
    wrong = sum(each.level is Level.WRONG for each in found)
    if json:
        print_json(found)
    else:
        warnings = sum(each.level is Level.WARNING for each in found)
        plural = "" if warnings == 1 else "s"
        console.print(Text(f"\n{len(found)} checks: {wrong} wrong, {warnings} warning{plural}"))
    return 1 if wrong else 0


def show_finding(finding: "Finding", console: Console) -> None:
    """Print a finding. What fixes it is one piece, however long, so that it can be copied."""
    mark, style = _MARKS[finding.level.value]
    line = Table.grid(padding=(0, 1, 0, 0))
    line.add_column()
    line.add_column(min_width=_ABOUT_CELLS, style="dim")
    line.add_column(overflow="fold")
    line.add_row(Text(mark, style), Text(finding.about), Text(finding.said))
    print_trimmed(line, console)
    if finding.mend is not None:
        mend = Text.assemble(f"{'':{_MEND_CELLS}}", ("-> ", "dim"), (finding.mend, "bold"))
        console.print(mend, soft_wrap=True)
