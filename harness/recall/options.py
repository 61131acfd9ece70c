"""The command line of the harness, read into one value."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from harness.recall.faults import RecallTransport
from harness.recall.line import Address

MOST_SESSIONS = 64
MOST_ROUNDS = 200
"""Two requests a round, and 512 a conversation is what a workflow may send in its window."""


class Inject(StrEnum):
    LEAK = "leak"
    SWAP = "swap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    sessions: int
    rounds: int
    transport: RecallTransport
    seed: int
    target: Address | None
    upstream_port: int
    json: Path | None
    inject: Inject | None


def read_options(argv: list[str] | None) -> Options:
    """Exits with 2, and says why, when the arguments do not fit together."""
    parser = _parser()
    told = parser.parse_args(argv)
    if told.target and not told.upstream_port:
        parser.error("--target needs --upstream-port: where that proxy's upstream is configured")
    if told.target and told.inject is Inject.LEAK:
        parser.error("--inject leak starts a proxy of its own: not with --target")
    if told.inject is Inject.SWAP and told.sessions == 1:
        parser.error("--inject swap needs two sessions to swap between")
    if told.json and not told.json.absolute().parent.is_dir():
        parser.error(f"--json: there is no folder {told.json.absolute().parent}")
    return Options(**vars(told))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="turnlane recall",
        description="Load a proxy with simulated agents; each must get back exactly its own.",
    )
    add = parser.add_argument
    add("--sessions", type=_whole(1, MOST_SESSIONS), default=32, help="1 to 64; 32")
    add("--rounds", type=_whole(1, MOST_ROUNDS), default=10, help="turns of each session; 10")
    add(
        "--transport",
        type=RecallTransport,
        choices=list(RecallTransport),
        default=RecallTransport.WS,
    )
    add("--seed", type=int, default=1, help="the same seed is the same run; 1")
    add("--target", type=_address, metavar="URL", help="a running proxy instead of a child")
    add(
        "--upstream-port",
        type=_whole(1, 65535),
        default=0,
        metavar="PORT",
        help="where the upstream of --target is configured to be: http://127.0.0.1:PORT/v1",
    )
    add("--json", type=Path, metavar="FILE", help="write the report there too")
    add("--inject", type=Inject, choices=list(Inject), help="a defect; the run must then fail")
    return parser


def _whole(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not least <= (value := int(text)) <= most:
            raise argparse.ArgumentTypeError(f"{value} is not between {least} and {most}")
        return value

    return number


def _address(url: str) -> Address:
    parts = urlsplit(url if "//" in url else f"//{url}", scheme="http")
    if parts.scheme != "http" or parts.hostname is None or parts.port is None:
        raise argparse.ArgumentTypeError(f"{url} is not like http://127.0.0.1:8765")
    return Address(host=parts.hostname, port=parts.port)
