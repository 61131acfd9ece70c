"""exits: what the commands share: their common options, the home they act on, and exit codes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from proxy.config import home
from proxy.errors import ConfigError

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", envvar="TURNLANE_CONFIG", help="A TOML file; see docs/config.md."),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


def operate(command: Callable[[Path], int]) -> None:
    """Run a command on the home of this environment, and exit with its code."""
    try:
        code = command(home(os.environ))
    except ConfigError as error:
        complain(error)
    raise typer.Exit(code)


def complain(error: BaseException) -> NoReturn:
    """Usage or configuration: exit code 2."""
    typer.echo(f"turnlane: {error}", err=True)
    raise typer.Exit(2)
