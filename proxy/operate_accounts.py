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

from proxy.account_table import account_table, clock_of
from proxy.accounts.book import checked
from proxy.accounts.pool import AccountStatistics
from proxy.accounts.reference import SECRET_BYTES
from proxy.checkup import CHECKUP_SECONDS, Health
from proxy.config import Config, check_url
from proxy.control import NotRunning, ask, ask_about_accounts
from proxy.errors import ConfigError
from proxy.operate import failed, not_running, say

TEST_SECONDS: Final = CHECKUP_SECONDS + 10.0
_ONCE: Final = (
    "a refresh token works once: if anything else refreshes this login, one is signed out"
)

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
        """Raises ConfigError for a name or a URL that is none."""
        try:
            checked(self.name)
        except ValueError as error:
            raise ConfigError("NAME", str(error)) from error
        check_url("--url", self.url)
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
    return 0


def remove_account(home: Path, configured: Configured, name: str) -> int:
    answer = ask_about_accounts(home, {"command": "accounts.remove", "name": name}, configured)
    if failed(answer):
        return 1
    say(f"{name} is removed; what runs on it goes on to its end")
    if not answer["left"]:
        say("there is no account left: each client's own login is used again")
    return 0


def try_account(home: Path, name: str, *, as_json: bool) -> int:
    """0 when its credential is good."""
    try:
        answer = ask(home, {"command": "accounts.test", "name": name}, TEST_SECONDS)
    except NotRunning:
        return not_running(home)
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
        return _print_json(answer)
    for route in answer["routes"]:
        typer.echo(_routed(route, time.time()))
    return 0


def _put(home: Path, configured: Configured, asked: Mapping[str, object]) -> int:
    answer = ask_about_accounts(home, asked, configured)
    if failed(answer):
        return 1
    name = asked["name"]
    if not answer["replaced"]:
        say(f"{name} is added, and serves new threads from now on")
    elif answer["moved"]:
        say(f"{name} has another credential now; threads bound to it begin anew")
    else:
        say(f"{name} has the same credential as before; threads bound to it stay")
    for other in answer["same_as"]:
        say(f"{name} and {other} are one account of the provider, and share its quota")
    return 0


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
    if env is not None:
        text, where = environment.get(env, ""), f"the variable {env}"
    elif sys.stdin.isatty():
        text, where = getpass.getpass(f"API key of {name}: "), "what was typed"
    else:
        text, where = sys.stdin.read(SECRET_BYTES), "stdin"
    text = text.strip()
    if not text:
        raise ConfigError("the key", f"{where} is empty or not there")
    if not text.isprintable():
        raise ConfigError("the key", f"{where} holds more than one line")
    return text


def _codex_login(environment: Mapping[str, str]) -> Path:
    home = environment.get("CODEX_HOME") or "~/.codex"
    return Path(home).expanduser() / "auth.json"


def _print_json(answer: object) -> int:
    typer.echo(msgspec.json.encode(answer).decode())
    return 0
