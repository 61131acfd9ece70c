"""The `turnlane` command: arguments, environment and exit codes; the work is done elsewhere.

Exit codes: 0 good, 1 failed, 2 usage or configuration. stdout is the answer, stderr the log.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from proxy import __version__
from proxy.cli.accounts import accounts
from proxy.cli.common import AsJson, Commands, ConfigFile, home, say_what_is_lost
from proxy.cli.keys import keys, workflows
from proxy.cli.service import service
from proxy.config.settings import ServerSettings
from proxy.errors import ConfigError, PortTaken

if TYPE_CHECKING:
    from proxy.codex.place import Environment
    from proxy.config.load import Config


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


app = typer.Typer(
    name="turnlane",
    cls=Commands,
    help="A proxy between coding agents and model services.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


_SERVER: Final = ServerSettings()


@app.callback()
def _turnlane(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


@app.command()
def serve(
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help=f"Address to listen on (default: {_SERVER.host})."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", help=f"Port to listen on (default: {_SERVER.port}; 0 picks a free one)."
        ),
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Base URL of the model service (default: the one each client's login belongs to).",
        ),
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Replace the running turnlane without interruption.")
    ] = False,
    config: ConfigFile = None,
    codex: Annotated[
        bool, typer.Option("--codex", help="Connect Codex while serving; see `turnlane codex`.")
    ] = False,
) -> None:
    """Run the proxy in the foreground until SIGINT or SIGTERM."""
    import logging

    import trio

    from proxy.process.activation import read_launch
    from proxy.process.serve import collect_less_often
    from proxy.process.serve import serve as run

    given = {"host": host, "port": port}
    server: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    flags: dict[str, dict[str, object]] = {
        "server": server,
        "upstream": {} if upstream is None else {"url": upstream},
    }
    settings = _load(config, flags)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s turnlane %(levelname)s %(message)s",
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    place = _place(settings.home) if codex else None
    launch = read_launch(os.environ, os.getpid(), take_over=take_over)
    say = partial(_say_ready, settings.home, codex)
    collect_less_often()
    try:
        trio.run(partial(run, settings, say, codex=place, launch=launch))
    except PortTaken as error:
        raise _with_holder(error, settings.server) from error


@app.command()
def check(config: ConfigFile = None) -> int:
    """Check a configuration file and report every key that is wrong."""
    from proxy.cli.check import check_config

    return check_config(config, os.environ)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def recall(context: typer.Context) -> int:
    """Run many sessions and prove that nothing is lost."""
    from harness.recall.__main__ import main as harness

    return harness(context.args)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def simulate(context: typer.Context) -> int:
    """Compare the cost of three routing strategies on one load."""
    from harness.simulate.simulate import main as simulation

    return simulation(context.args)


codex = typer.Typer(help="Connect and disconnect Codex.", no_args_is_help=True)
app.add_typer(keys, name="keys")
app.add_typer(workflows, name="workflows")
app.add_typer(accounts, name="accounts")
app.add_typer(codex, name="codex")
app.add_typer(service, name="service")


def _place(where: Path) -> "Environment":
    from proxy.codex.place import Environment

    return Environment(home=where, environment=os.environ)


@codex.command("on")
def codex_on(
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, metavar="PORT", help="turnlane's port (default: the running one's)."
        ),
    ] = None,
) -> int:
    """Point Codex's configuration at a running turnlane."""
    from proxy.cli.codex import on

    return on(_place(home()), port)


@codex.command("off")
def codex_off() -> int:
    """Restore Codex's configuration; turnlane need not be running."""
    from proxy.cli.codex import off

    return off(_place(home()))


@codex.command("show")
def codex_show(as_json: AsJson = False) -> int:
    """Show where Codex goes and which processes need a restart."""
    from proxy.cli.codex import show

    return show(_place(home()), as_json=as_json)


@app.command()
def status(as_json: AsJson = False) -> int:
    """Show whether turnlane serves and whether Codex uses it.

    The current load and the last hour follow. The exit code is 0 only if turnlane serves.
    """
    from proxy.cli.status import show_status

    return show_status(home(), json=as_json)


@app.command()
def doctor(config: ConfigFile = None, as_json: AsJson = False) -> int:
    """Find problems and name the commands that fix them."""
    from proxy.cli.status import show_doctor

    settings: Config | ConfigError
    try:
        settings = _load(config)
    except ConfigError as error:
        settings = error
    return show_doctor(home(), settings, config, json=as_json)


@app.command()
def log(
    follow: Annotated[bool, typer.Option("--follow", help="Keep printing new records.")] = False,
    lines: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of records to print at most.")
    ] = 50,
    as_json: AsJson = False,
) -> int:
    """Print the newest records, one for each turn and each refusal."""
    from proxy.cli.log import show_log

    shown_on = sys.stdout.isatty() or "COLUMNS" in os.environ
    columns = shutil.get_terminal_size().columns if shown_on else None
    return show_log(home(), lines=lines, follow=follow, as_json=as_json, columns=columns)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def _say_ready(home: Path, codex: bool, url: str) -> None:
    """Print the ready line, which scripts wait for, and a hint for people."""
    typer.echo(f"turnlane {__version__} ready on {url}")
    if not codex:
        from proxy.cli.codex import called, hint_of_codex

        command = called(sys.argv[0], shutil.which("turnlane"))
        typer.echo(hint_of_codex(url, home, os.environ, command))


def _with_holder(taken: PortTaken, server: ServerSettings) -> PortTaken:
    """Return the error with the program that has the port, where that can be seen."""
    from proxy.status.processes import listener_at

    found = listener_at(server.host, server.port)
    by = "" if found is None else found.named
    if found is not None and found.turnlane:
        by = f" by another turnlane{by}"
    does = "use `--port N`, or run `turnlane doctor` for details"
    return PortTaken(taken.key, f"{server.host}:{server.port} is taken{by}; {does}")


def _load(
    config: Path | None, flags: Mapping[str, Mapping[str, object]] = MappingProxyType({})
) -> "Config":
    """Raises ConfigError."""
    from proxy.config.load import load

    return load(config, os.environ, flags)


def main() -> None:
    command = typer.main.get_command(app)
    say_what_is_lost(partial(command, default_map=_no_help(command)))


def _no_help(command: object) -> dict[str, object]:
    """Give `--help` of a command and those below it the default False.

    Without one its value is None, and typer imports pydantic to convert that: 0.1 s.
    """
    options = {each.name for each in getattr(command, "params", ())}  # one is called `version`, too
    below: Mapping[str, object] = getattr(command, "commands", {})
    inner = {name: _no_help(each) for name, each in below.items() if name not in options}
    return {"help": False, **inner}
