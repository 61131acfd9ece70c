"""operate_accounts: the operator's commands about accounts; each returns an exit code.

A secret goes from stdin or the environment to the control socket, and nowhere else.
"""

import getpass
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import typer
from rich.console import Console

from proxy.accounts.credentials.auth_json import can_travel
from proxy.accounts.credentials.secret_source import SECRET_BYTES
from proxy.accounts.registry import checked
from proxy.accounts.spec import check_patterns
from proxy.accounts.statistics import AccountStatistics
from proxy.accounts.view import Standing
from proxy.cli.actions import asked, failed, say
from proxy.config.load import Config, check_url
from proxy.control.checkup import CHECKUP_SECONDS, Health
from proxy.control.offline import ask_about_accounts
from proxy.errors import ConfigError
from proxy.status.account_table import account_table, clock_of

TEST_SECONDS: Final = CHECKUP_SECONDS + 10.0
_ONCE: Final = (
    "a refresh token works once: if anything else refreshes this login, one is signed out"
)

_KEY: Final = "a key is one line of visible ASCII without spaces"

Configured = Callable[[], Config]


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An account as the command line describes it."""

    name: str
    url: str | None = None
    models: list[str] | None = None
    organization: str | None = None
    project: str | None = None

    def asked(self, command: str, **more: object) -> dict[str, object]:
        """Raises ConfigError for what is none: a name, a URL, a pattern."""
        try:
            checked(self.name)
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
        told = {
            "url": self.url,
            "models": self.models,
            "organization": self.organization,
            "project": self.project,
        }
        kept = {name: value for name, value in told.items() if value}
        return {"command": command, "name": self.name, **kept, **more}


def add_account(home: Path, configured: Configured, described: Described, env: str | None) -> int:
    asked = described.asked("accounts.add")
    asked["secret"] = _secret(described.name, env, os.environ)
    return _put(home, configured, asked)


def import_account(
    home: Path, configured: Configured, described: Described, path: Path | None, *, copy: bool
) -> int:
    where = (_codex_login(os.environ) if path is None else path.expanduser()).absolute()
    asked = described.asked("accounts.import", path=str(where), copy=copy)
    code = _put(home, configured, asked)
    if copy and not code:
        say(f"{described.name} has a copy of {where}; {_ONCE}")
    return code


def list_accounts(home: Path, configured: Configured, *, as_json: bool) -> int:
    answer = ask_about_accounts(home, {"command": "accounts.list"}, configured)
    if failed(answer):
        return 1
    if as_json:
        return _print_json(answer["accounts"])
    accounts = msgspec.convert(answer["accounts"], list[AccountStatistics])
    if not accounts:
        say("there are no accounts: each client's own login is used")
        return 0
    console = Console()
    blocks = "▇▁" if console.encoding.startswith("utf") else "#."
    console.print(account_table(accounts, time.time(), None, columns=console.width, blocks=blocks))
    return 0


def pause_account(home: Path, configured: Configured, name: str, *, paused: bool) -> int:
    command = "accounts.pause" if paused else "accounts.resume"
    answer = ask_about_accounts(home, {"command": command, "name": name}, configured)
    if failed(answer):
        return 1
    say(f"{name} is paused; threads bound to it move" if paused else f"{name} is in use again")
    if paused and not answer["usable"]:
        say("there is no account left that can serve: turns are refused until there is one")
    return 0


def remove_account(home: Path, configured: Configured, name: str) -> int:
    answer = ask_about_accounts(home, {"command": "accounts.remove", "name": name}, configured)
    if failed(answer):
        return 1
    if answer["configured"]:
        say(f"what was added as {name} is removed; the account {name} of config.toml stays")
        return 0
    ends = "; what runs on it goes on to its end" if answer["running"] else ""
    say(f"{name} is removed{ends}")
    if not answer["left"]:
        say("there is no account left: each client's own login is used again")
    return 0


def try_account(home: Path, name: str, *, as_json: bool) -> int:
    """0 when its credential is good."""
    answer = asked(home, {"command": "accounts.test", "name": name}, TEST_SECONDS)
    if failed(answer):
        return 1
    if as_json:
        _print_json(answer)
    else:
        usage = "; the usage that the provider reports is taken in" if answer["usage"] else ""
        typer.echo(f"{name}: credential {answer['credential']} ({answer['detail']}){usage}")
    return 0 if answer["credential"] == Health.GOOD else 1


def preview_thread(
    home: Path,
    configured: Configured,
    *,
    thread: str,
    model: str | None,
    key: str | None,
    as_json: bool,
) -> int:
    asked = {"command": "accounts.preview", "thread": thread, "model": model, "key": key}
    answer = ask_about_accounts(home, asked, configured)
    if failed(answer):
        return 1
    if as_json:
        return _print_json({"thread": answer["thread"], "routes": answer["routes"]})
    for route in answer["routes"]:
        typer.echo(_routed(route, time.time()))
    return 0


def _put(home: Path, configured: Configured, asked: Mapping[str, object]) -> int:
    answer = ask_about_accounts(home, asked, configured)
    if failed(answer):
        return 1
    name = asked["name"]
    if not answer["replaced"]:
        since = "from now on" if answer["running"] else "once `turnlane serve` runs"
        say(f"{name} is added, and serves new threads {since}")
    elif answer["moved"]:
        say(f"{name} has another credential now; threads bound to it begin anew")
    else:
        say(f"{name} has the same credential as before; threads bound to it stay")
    if kept := answer["kept"]:
        values = ", ".join(f"{key} {_listed(value)}" for key, value in kept.items())
        say(f"{name} keeps what was not given anew: {values}; to drop it, remove {name} first")
    if answer["account"]["standing"] == Standing.PAUSED:
        say(f"{name} is still paused: `turnlane accounts resume {name}`")
    for other in answer["same_as"]:
        say(f"{name} and {other} are one account of the provider, and share its quota")
    return 0


def _listed(value: object) -> str:
    return " ".join(value) if isinstance(value, list | tuple) else str(value)


def _routed(route: Mapping[str, Any], now: float) -> str:
    model = route["model"] or "any model"
    if route["account"] is None:
        at = route["retry_at"]
        wait = "" if at is None else f"; to be tried again at {clock_of(at, now, None)}"
        return f"{model}: nobody, {route['why']}{wait}"
    score = "usage unknown" if route["score"] is None else f"usage {route['score']:.0f} %"
    probe = ", as a probe" if route["probe"] else ""
    return f"{model}: {route['account']} ({route['move']}: {route['why']}; {score}{probe})"


def _secret(name: str, env: str | None, environment: Mapping[str, str]) -> str:
    """One line. Raises ConfigError, whose text never holds it."""
    text, where = _given(name, env, environment)
    text = text.strip()
    if not text:
        raise ConfigError("the key", f"{where} is empty or not there")
    if not can_travel(text):
        raise ConfigError("the key", f"{where} holds no API key: {_KEY}")
    return text


def _given(name: str, env: str | None, environment: Mapping[str, str]) -> tuple[str, str]:
    """What is to be a key, and where it comes from."""
    if env is not None:
        if not env:
            raise ConfigError("--env", "the name of a variable is missing")
        return environment.get(env, ""), f"the variable {env}"
    if sys.stdin is None or sys.stdin.closed:
        raise ConfigError("the key", "stdin is closed: give it there, or with --env VAR")
    if sys.stdin.isatty():
        try:
            return getpass.getpass(f"API key of {name}: "), "what was typed"
        except EOFError:
            return "", "what was typed"
    data = sys.stdin.buffer.read(SECRET_BYTES + 1)
    if len(data) > SECRET_BYTES:
        raise ConfigError("the key", f"stdin holds more than {SECRET_BYTES // 1024} KiB: {_KEY}")
    return data.decode("utf-8", "replace"), "stdin"


def _codex_login(environment: Mapping[str, str]) -> Path:
    home = environment.get("CODEX_HOME") or "~/.codex"
    return Path(home).expanduser() / "auth.json"


def _print_json(answer: object) -> int:
    typer.echo(msgspec.json.encode(answer).decode())
    return 0
