"""The `turnlane accounts` commands.

A secret goes from stdin or the environment to the control socket, and nowhere else. It is never an
argument, which every process of the machine could read.
"""

import getpass
import os
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from proxy.accounts.credentials.secret_source import SECRET_BYTES
from proxy.accounts.spec import account_id, check_patterns
from proxy.accounts.view import Standing
from proxy.cli.common import AsJson, ConfigFile, bar_of, home, print_json, say
from proxy.errors import ConfigError

if TYPE_CHECKING:
    from proxy.config.load import Config
    from proxy.control.commands import AccountPut, PreviewedRoute, Request

A = TypeVar("A")

_ONCE: Final = "a refresh token works only once, so use this login nowhere else"
_KEY: Final = "a key is one line of visible ASCII without spaces"

accounts = typer.Typer(help="Manage the accounts that serve turns.", no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Lower-case letters, digits, '.', '_' and '-'.")
]
Url = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Base URL of the account (default: the provider's)."),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="PATTERN",
        help="Model that its plan includes, such as 'gpt-5*'; repeatable.",
    ),
]


@accounts.callback()
def _configured(context: typer.Context, config: ConfigFile = None) -> None:
    context.obj = partial(_load, config)


def _load(config: Path | None) -> "Config":
    """Read the configuration, which may describe accounts too. Raises ConfigError."""
    from proxy.config.load import load

    return load(config, os.environ, {}, offline=True)


def _ask(context: typer.Context, command: "Request[A]") -> "tuple[A, bool]":
    """Have a command carried out, and say whether a turnlane runs; without one, the configuration
    is read too."""
    from proxy.control.offline import ask_about_accounts

    return ask_about_accounts(home(), command, context.obj)


@accounts.command("add")
def accounts_add(
    context: typer.Context,
    name: Name,
    env: Annotated[
        str | None,
        typer.Option(
            metavar="VAR", help="Read the key from this environment variable, not from stdin."
        ),
    ] = None,
    url: Url = None,
    models: Models = None,
    organization: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Sent with each request as openai-organization."),
    ] = None,
    project: Annotated[
        str | None, typer.Option(metavar="ID", help="Sent with each request as openai-project.")
    ] = None,
) -> int:
    """Add an API key from stdin, or replace an account's credential."""
    from proxy.accounts.credentials.auth_json import can_travel
    from proxy.control.commands import AddAccount

    _check(name, url, models)
    for option, value in (("organization", organization), ("project", project)):
        if value is not None and not can_travel(value):
            raise ConfigError(f"--{option}", "must be visible ASCII without spaces")
    command = AddAccount(
        name=name,
        secret=_secret(name, env, os.environ),
        url=url or None,
        models=tuple(models) if models else None,
        organization=organization or None,
        project=project or None,
    )
    return _put(context, name, command)


@accounts.command("import")
def accounts_import(
    context: typer.Context,
    name: Name,
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[PATH]", help="An auth.json file (default: the one of Codex)."),
    ] = None,
    copy: Annotated[
        bool, typer.Option("--copy", help="Keep a copy, for a login that Codex no longer uses.")
    ] = False,
    url: Url = None,
    models: Models = None,
) -> int:
    """Add a ChatGPT login, which stays shared with Codex."""
    from proxy.control.commands import ImportAccount

    _check(name, url, models)
    where = (_codex_login(os.environ) if path is None else path.expanduser()).absolute()
    command = ImportAccount(
        name=name,
        path=str(where),
        copy=copy,
        url=url or None,
        models=tuple(models) if models else None,
    )
    code = _put(context, name, command)
    if copy:
        say(f"{name} uses a copy of {where}; {_ONCE}")
    return code


@accounts.command("list")
def accounts_list(context: typer.Context, as_json: AsJson = False) -> int:
    """List the accounts with their state, usage and last hour."""
    from proxy.control.commands import ListAccounts

    found = _ask(context, ListAccounts())[0].accounts
    if as_json:
        print_json(found)
        return 0
    if not found:
        say("there are no accounts: each client's own login is used")
        return 0
    from rich.console import Console

    from proxy.status.account_table import account_table

    console = Console()
    columns, blocks = console.width, bar_of(console)
    console.print(account_table(found, time.time(), None, columns=columns, blocks=blocks))
    return 0


@accounts.command("pause")
def accounts_pause(context: typer.Context, name: Name) -> int:
    """Stop using an account until it is resumed; its threads move."""
    from proxy.control.commands import PauseAccount

    done, _ = _ask(context, PauseAccount(name=name))
    say(f"{name} is paused; its threads move")
    if not done.usable:
        say("no account can serve now: turns are refused until one can")
    return 0


@accounts.command("resume")
def accounts_resume(context: typer.Context, name: Name) -> int:
    """Use a paused account again."""
    from proxy.control.commands import ResumeAccount

    _ask(context, ResumeAccount(name=name))
    say(f"{name} is in use again")
    return 0


@accounts.command("remove")
def accounts_remove(context: typer.Context, name: Name) -> int:
    """Remove an account and its secret; a shared auth.json is kept."""
    from proxy.control.commands import RemoveAccount

    removed, running = _ask(context, RemoveAccount(name=name))
    if removed.configured:
        say(f"{name} is removed; the account {name} of the configuration file stays")
        return 0
    ends = "; its running turns continue to their end" if running else ""
    say(f"{name} is removed{ends}")
    if not removed.left:
        say("no accounts are left: each client's own login is used again")
    return 0


@accounts.command("test")
def accounts_test(name: Name, as_json: AsJson = False) -> int:
    """Check an account's credential with its provider, at no cost."""
    from proxy.control.client import ask
    from proxy.control.commands import CHECKUP_SECONDS, Health, TestAccount

    tested = ask(home(), TestAccount(name=name), CHECKUP_SECONDS + 10.0)
    if as_json:
        print_json(tested)
    else:
        usage = "; usage updated" if tested.usage else ""
        typer.echo(f"{name}: credential {tested.credential} ({tested.detail}){usage}")
    return 0 if tested.credential is Health.GOOD else 1


@accounts.command("preview")
def accounts_preview(
    context: typer.Context,
    thread: Annotated[
        str, typer.Argument(metavar="THREAD", help="The client's own id of the thread.")
    ],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Model to preview (default: those the thread is bound for)."
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="ID", help="Id of the key whose thread it is.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show which account the next turn of a thread would use."""
    from proxy.control.commands import PreviewThread

    previewed, _ = _ask(context, PreviewThread(thread=thread, model=model, key=key))
    if as_json:
        print_json(previewed)
        return 0
    for route in previewed.routes:
        typer.echo(_routed(route, time.time()))
    return 0


def _check(name: str, url: str | None, models: list[str] | None) -> None:
    """Raise ConfigError for a value that is not valid, which names the option."""
    from proxy.config.load import check_url

    try:
        account_id(name)
    except ValueError as error:
        raise ConfigError("NAME", str(error)) from error
    check_url("--url", url)
    try:
        check_patterns(models or ["*"])
    except ValueError as error:
        raise ConfigError("--model", str(error)) from error


def _put(context: typer.Context, name: str, command: "Request[AccountPut]") -> int:
    done, running = _ask(context, command)
    if not done.replaced:
        since = "from now on" if running else "once `turnlane serve` runs"
        say(f"{name} is added and serves new threads {since}")
    elif done.moved:
        say(f"{name} has another credential now; threads bound to it start without their cache")
    else:
        say(f"{name} has the same credential as before; threads bound to it stay")
    if done.kept:
        values = ", ".join(f"{key} {_listed(value)}" for key, value in done.kept.items())
        say(f"{name} keeps {values}; to drop that, remove {name} first")
    if done.account is not None and done.account.standing is Standing.PAUSED:
        say(f"{name} is still paused; run `turnlane accounts resume {name}` to use it")
    for other in done.same_as:
        say(f"{name} and {other} are the same account of the provider and share its quota")
    return 0


def _listed(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else " ".join(value)


def _routed(route: "PreviewedRoute", now: float) -> str:
    from proxy.status.account_table import clock_of

    model = route.model or "any model"
    if route.account is None:
        at = route.retry_at
        wait = "" if at is None else f"; next try at {clock_of(at, now, None)}"
        return f"{model}: no account, {route.why}{wait}"
    score = "usage unknown" if route.score is None else f"usage {route.score:.0f} %"
    probe = ", as a probe" if route.probe else ""
    return f"{model}: {route.account} ({route.move}: {route.why}; {score}{probe})"


def _secret(name: str, env: str | None, environment: Mapping[str, str]) -> str:
    """Return a key of one line. Raises ConfigError, whose text never holds it."""
    from proxy.accounts.credentials.auth_json import can_travel

    text, where = _given(name, env, environment)
    text = text.strip()
    if not text:
        raise ConfigError("the key", f"{where} is empty")
    if not can_travel(text):
        raise ConfigError("the key", f"{where} does not hold an API key: {_KEY}")
    return text


def _given(name: str, env: str | None, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return what should be a key, and where it comes from."""
    if env is not None:
        if not env:
            raise ConfigError("--env", "the name of an environment variable is missing")
        return environment.get(env, ""), f"the environment variable {env}"
    if sys.stdin is None or sys.stdin.closed:
        raise ConfigError("the key", "stdin is closed; pass the key there, or use --env VAR")
    if sys.stdin.isatty():
        try:
            return getpass.getpass(f"API key of {name}: "), "the input"
        except EOFError:
            return "", "the input"
    data = sys.stdin.buffer.read(SECRET_BYTES + 1)
    if len(data) > SECRET_BYTES:
        raise ConfigError("the key", f"stdin holds more than {SECRET_BYTES // 1024} KiB: {_KEY}")
    return data.decode("utf-8", "replace"), "stdin"


def _codex_login(environment: Mapping[str, str]) -> Path:
    home = environment.get("CODEX_HOME") or "~/.codex"
    return Path(home).expanduser() / "auth.json"
