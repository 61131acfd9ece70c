"""The commands about accounts; each returns an exit code.

A secret goes from stdin or the environment to the control socket, and nowhere else.
"""

import getpass
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from proxy.accounts.credentials.auth_json import can_travel
from proxy.accounts.credentials.secret_source import SECRET_BYTES
from proxy.accounts.spec import account_id, check_patterns
from proxy.accounts.view import Standing
from proxy.cli.common import print_json, say
from proxy.config.load import check_url
from proxy.control.client import ask
from proxy.control.commands import (
    CHECKUP_SECONDS,
    AccountPut,
    AddAccount,
    Health,
    ImportAccount,
    ListAccounts,
    PauseAccount,
    PreviewedRoute,
    PreviewThread,
    RemoveAccount,
    Request,
    ResumeAccount,
    TestAccount,
)
from proxy.control.offline import ask_about_accounts
from proxy.errors import ConfigError

if TYPE_CHECKING:
    from proxy.config.load import Config

TEST_SECONDS: Final = CHECKUP_SECONDS + 10.0
_ONCE: Final = "a refresh token works only once, so use this login nowhere else"

_KEY: Final = "a key is one line of visible ASCII without spaces"

Configured = Callable[[], "Config"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An account as the command line describes it. Raises ConfigError for an option that is not
    valid."""

    name: str
    url: str | None = None
    models: list[str] | None = None
    organization: str | None = None
    project: str | None = None

    def __post_init__(self) -> None:
        try:
            account_id(self.name)
        except ValueError as error:
            raise ConfigError("NAME", str(error)) from error
        check_url("--url", self.url)
        try:
            check_patterns(self.models or ["*"])
        except ValueError as error:
            raise ConfigError("--model", str(error)) from error
        for option, value in (("organization", self.organization), ("project", self.project)):
            if value is not None and not can_travel(value):
                raise ConfigError(f"--{option}", "must be visible ASCII without spaces")

    @property
    def common(self) -> dict[str, Any]:
        """The fields that every kind of account has."""
        models = tuple(self.models) if self.models else None
        return {"name": self.name, "url": self.url or None, "models": models}


def add_account(home: Path, configured: Configured, described: Described, env: str | None) -> int:
    command = AddAccount(
        **described.common,
        secret=_secret(described.name, env, os.environ),
        organization=described.organization or None,
        project=described.project or None,
    )
    return _put(home, configured, described.name, command)


def import_account(
    home: Path, configured: Configured, described: Described, path: Path | None, *, copy: bool
) -> int:
    where = (_codex_login(os.environ) if path is None else path.expanduser()).absolute()
    command = ImportAccount(**described.common, path=str(where), copy=copy)
    _put(home, configured, described.name, command)
    if copy:
        say(f"{described.name} uses a copy of {where}; {_ONCE}")
    return 0


def list_accounts(home: Path, configured: Configured, *, as_json: bool) -> int:
    accounts = ask_about_accounts(home, ListAccounts(), configured)[0].accounts
    if as_json:
        print_json(accounts)
        return 0
    if not accounts:
        say("there are no accounts: each client's own login is used")
        return 0
    from rich.console import Console

    from proxy.status.account_table import account_table

    console = Console()
    blocks = "▇▁" if console.encoding.startswith("utf") else "#."
    console.print(account_table(accounts, time.time(), None, columns=console.width, blocks=blocks))
    return 0


def pause_account(home: Path, configured: Configured, name: str, *, paused: bool) -> int:
    command = PauseAccount(name=name) if paused else ResumeAccount(name=name)
    done, _ = ask_about_accounts(home, command, configured)
    say(f"{name} is paused; its threads move" if paused else f"{name} is in use again")
    if paused and not done.usable:
        say("no account can serve now: turns are refused until one can")
    return 0


def remove_account(home: Path, configured: Configured, name: str) -> int:
    removed, running = ask_about_accounts(home, RemoveAccount(name=name), configured)
    if removed.configured:
        say(f"{name} is removed; the account {name} of the configuration file stays")
        return 0
    ends = "; its running turns continue to their end" if running else ""
    say(f"{name} is removed{ends}")
    if not removed.left:
        say("no accounts are left: each client's own login is used again")
    return 0


def test_account(home: Path, name: str, *, as_json: bool) -> int:
    """Print what the provider says of an account; 0 if its credential is good."""
    tested = ask(home, TestAccount(name=name), TEST_SECONDS)
    if as_json:
        print_json(tested)
    else:
        usage = "; usage updated" if tested.usage else ""
        typer.echo(f"{name}: credential {tested.credential} ({tested.detail}){usage}")
    return 0 if tested.credential is Health.GOOD else 1


def preview_thread(
    home: Path,
    configured: Configured,
    *,
    thread: str,
    model: str | None,
    key: str | None,
    as_json: bool,
) -> int:
    command = PreviewThread(thread=thread, model=model, key=key)
    previewed, _ = ask_about_accounts(home, command, configured)
    if as_json:
        print_json(previewed)
        return 0
    for route in previewed.routes:
        typer.echo(_routed(route, time.time()))
    return 0


def _put(home: Path, configured: Configured, name: str, command: Request[AccountPut]) -> int:
    done, running = ask_about_accounts(home, command, configured)
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


def _routed(route: PreviewedRoute, now: float) -> str:
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
    text, where = _given(name, env, environment)
    text = text.strip()
    if not text:
        raise ConfigError("the key", f"{where} is empty")
    if not can_travel(text):
        raise ConfigError("the key", f"{where} does not hold an API key: {_KEY}")
    return text


def _given(name: str, env: str | None, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return what is to be a key, and where it comes from."""
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
