"""What the commands share: options, the home they act on, output, and exit codes."""

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TextIO

import typer
from typer.core import TyperGroup

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


class Commands(TyperGroup):
    """A group whose commands return their exit code; an error of the operator is one line on stderr
    and exit code 1, or 2 if usage or configuration is to blame."""

    def invoke(self, ctx: Any) -> NoReturn:  # noqa: ANN401  typer's name for it is private
        try:
            code = super().invoke(ctx)
        except CommandFailed as error:
            say(str(error))
            code = 1
        except ConfigError as error:
            say(str(error))
            code = 2
        raise typer.Exit(code or 0)


def home() -> Path:
    """Return turnlane's home in this environment."""
    return home_of(os.environ)


def say(text: str) -> None:
    """Print something on stderr that is not part of the answer."""
    typer.echo(f"turnlane: {text}", err=True)


def print_json(answer: object) -> None:
    import msgspec

    typer.echo(msgspec.json.encode(answer, enc_hook=str).decode())


def bar_of(console: "Console") -> str:
    """Return a filled and an empty piece of a bar, from letters that the terminal has."""
    return "▇▁" if console.encoding.startswith("utf") else "#."


def print_trimmed(what: "RenderableType", console: "Console") -> None:
    """Print without the trailing blanks of a table, which are in the way in a file."""
    with console.capture() as shown:
        console.print(what)
    console.file.writelines(f"{line.rstrip()}\n" for line in shown.get().splitlines())


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
