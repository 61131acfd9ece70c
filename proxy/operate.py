"""operate: the commands about a running turnlane or its home; each returns an exit code."""

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from proxy.control import NotRunning, ask, ask_about_keys
from proxy.record import TurnRecord
from proxy.store import read

FOLLOW_SECONDS: Final = 0.5
_LOG_COLUMNS: Final = (
    "time",
    "transport",
    "outcome",
    "model",
    "lane",
    "root",
    "kind",
    "tries",
    "first ms",
    "total ms",
    "in",
    "cached",
    "out",
)


def add_key(home: Path, name: str) -> int:
    answer = ask_about_keys(home, {"command": "keys.add", "name": name})
    if _failed(answer):
        return 1
    typer.echo(answer["secret"])
    _say(f"This is {answer['key']['id']}; the key itself is not shown again.")
    return 0


def list_keys(home: Path, *, as_json: bool) -> int:
    answer = ask_about_keys(home, {"command": "keys.list"})
    rows = [(key["id"], key["name"], _when(key["created"])) for key in answer["keys"]]
    return _show(answer["keys"], ("id", "name", "made"), rows, as_json=as_json)


def revoke_key(home: Path, key_id: str) -> int:
    answer = ask_about_keys(home, {"command": "keys.revoke", "id": key_id})
    if _failed(answer):
        return 1
    _say(f"{key_id} is revoked; its open connections end at their next turn.")
    return 0


def list_workflows(home: Path, *, as_json: bool) -> int:
    try:
        answer = ask(home, {"command": "workflows"})
    except NotRunning:
        return _not_running(home)
    names = ("root", "active", "workers", "children", "worker_sends", "interactive_sends")
    rows = [[str(one[name])[:16] for name in (*names, "refused")] for one in answer["workflows"]]
    titles = ("root", "active", "workers", "children", "sends", "interactive sends", "refused")
    return _show(answer["workflows"], titles, rows, as_json=as_json)


def clear_workflow(home: Path, root: str) -> int:
    try:
        answer = ask(home, {"command": "workflows.clear", "root": root})
    except NotRunning:
        return _not_running(home)
    if _failed(answer):
        return 1
    _say(f"the window of {answer['cleared'][:16]} is forgiven")
    return 0


def show_log(home: Path, *, lines: int, follow: bool, as_json: bool) -> int:
    """The newest records, oldest first; with `follow` until interrupted."""
    write = _json_line if as_json else _text_line()
    last = 0
    try:
        while True:
            for number, record in read(home, last, lines):
                write(record)
                last = number
            if not follow:
                return 0
            time.sleep(FOLLOW_SECONDS)
    except KeyboardInterrupt:
        return 0


def _json_line(record: TurnRecord) -> None:
    typer.echo(msgspec.json.encode(record).decode())


def _text_line() -> Callable[[TurnRecord], None]:
    widths = (19, 9, 34, 12, 8, 8, 11, 5, 8, 8, 7, 7, 6)

    def line(cells: Iterable[str]) -> None:
        parts = (cell[:width].ljust(width) for cell, width in zip(cells, widths, strict=True))
        typer.echo(" ".join(parts).rstrip())

    line(_LOG_COLUMNS)
    return lambda record: line(_cells(record))


def _cells(record: TurnRecord) -> tuple[str, ...]:
    ended = record.outcome.value if record.refusal is None else f"refused {record.refusal}"
    usage = record.usage
    return (
        _when(record.wall),
        record.transport,
        ended,
        record.model or "-",
        record.lane or "-",
        record.root or "-",
        "worker" if record.worker else "interactive",
        str(record.attempts),
        _number(record.first_event_ms),
        _number(record.total_ms),
        _number(usage.input_tokens),
        _number(usage.cached_tokens),
        _number(usage.output_tokens),
    )


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _when(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _show(
    answer: object, titles: Iterable[str], rows: Iterable[Iterable[str]], *, as_json: bool
) -> int:
    if as_json:
        typer.echo(msgspec.json.encode(answer).decode())
        return 0
    table = Table(*titles)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    return 0


def _failed(answer: dict[str, Any]) -> bool:
    if "error" not in answer:
        return False
    _say(answer["error"])
    return True


def _not_running(home: Path) -> int:
    _say(f"no turnlane runs on {home}; start one with `turnlane serve`")
    return 1


def _say(text: str) -> None:
    typer.echo(f"turnlane: {text}", err=True)
