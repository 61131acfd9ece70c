"""exits: what the commands share: their common options, the home they act on, and exit codes."""

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, NoReturn, TextIO

import typer

from proxy.config.load import home
from proxy.errors import ConfigError

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar="TURNLANE_CONFIG",
        help="A TOML file; see docs/config.md.",
    ),
]
_UNWRITABLE: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE}
)
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


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


def say_what_is_lost(command: Callable[[], None]) -> None:
    """An answer that cannot be written, as on a full disk, is one line on stderr and exit code 1.
    Troubles with a named file are somebody else's."""
    try:
        try:
            command()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE:
            raise
        _give_up(sys.stdout)
        typer.echo(f"turnlane: the answer cannot be written: {error.strerror}", err=True)
        sys.exit(1)


def _give_up(stream: TextIO) -> None:
    """Or the interpreter tries again at its end, and complains."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
