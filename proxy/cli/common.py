"""What the commands share: common options, the home they act on, and exit codes."""

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn, TextIO

import typer

from proxy.errors import CommandFailed, ConfigError
from proxy.home.lock import home_of

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar="TURNLANE_CONFIG",
        help="TOML configuration file; see docs/config.md.",
    ),
]
_UNWRITABLE: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE}
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def operate(command: Callable[[Path], int]) -> None:
    """Run a command on the home of this environment, and exit with its code."""
    try:
        code = command(home_of(os.environ))
    except CommandFailed as error:
        say(str(error))
        code = 1
    except ConfigError as error:
        complain(error)
    raise typer.Exit(code)


def say(text: str) -> None:
    """Tell the user something that is not part of the answer."""
    typer.echo(f"turnlane: {text}", err=True)


def print_json(answer: object) -> None:
    import msgspec

    typer.echo(msgspec.json.encode(answer, enc_hook=str).decode())


def print_trimmed(what: "RenderableType", console: "Console") -> None:
    """Print without the blanks up to the width of a table, which are in the way in a file."""
    with console.capture() as shown:
        console.print(what)
    console.file.writelines(f"{line.rstrip()}\n" for line in shown.get().splitlines())


def complain(error: BaseException) -> NoReturn:
    """Say what is wrong with the usage or the configuration; exit code 2."""
    say(str(error))
    raise typer.Exit(2)


def say_what_is_lost(command: Callable[[], None]) -> None:
    """Report an answer that cannot be written, as on a full disk, in one line on stderr and with
    exit code 1. An error that names a file is another matter."""
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
        say(f"the output cannot be written: {error.strerror}")
        sys.exit(1)


def _give_up(stream: TextIO) -> None:
    """Drop what is buffered, or the interpreter tries again at its end, and complains."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
