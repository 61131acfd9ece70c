"""`turnlane status`: what it prints, and its exit code."""

import os
import time
from functools import partial
from pathlib import Path

from rich.console import Console

from proxy.cli.common import print_json, print_trimmed
from proxy.status.overview import Sources, as_json, overview
from proxy.status.render import screen


def show_status(home: Path, *, json: bool) -> int:
    """Print the overview; 0 when this turnlane serves, else 1."""
    sources = Sources(environment=os.environ, wall=time.time, hindrance=partial(_hindrance, home))
    seen = overview(home, sources)
    if json:
        print_json(as_json(seen))
    else:
        console = Console(highlight=False)
        blocks = "▇▁" if console.encoding.startswith("utf") else "#."
        print_trimmed(screen(seen, None, columns=console.width, blocks=blocks), console)
    return 0 if seen.serving else 1


def _hindrance(home: Path) -> str | None:
    """Say why none could be started here; imported only where none runs."""
    from proxy.status.preflight import hindrance
    from proxy.status.processes import listener_at

    return hindrance(home, os.environ, listener_at)
