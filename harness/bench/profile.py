"""A turn's time by part: turnlane under cProfile, its own time summed by what it is in."""

import pstats
import signal
import subprocess
from collections import Counter
from pathlib import Path

from harness.child import python, with_path

PARTS = (
    "trio",
    "hypercorn",
    "h11",
    "wsproto",
    "httpx",
    "httpcore",
    "msgspec",
    "lifecycle",
    "proxy",
)
KERNEL = ("posix.", "_socket.socket", "select.epoll")


def start(port: int, upstream: int, home: Path) -> "subprocess.Popen[bytes]":
    """turnlane, its profile in `home` when it has ended."""
    command = python("cProfile", "-o", str(home / "profile"), "-m", "proxy")
    command += ["serve", "--port", str(port), "--upstream", f"http://127.0.0.1:{upstream}/v1"]
    environment = with_path({"PATH": "/usr/bin:/bin", "TURNLANE_HOME": str(home / "turnlane")})
    with (home / "log").open("wb") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def stop(child: "subprocess.Popen[bytes]", home: Path) -> dict[str, float]:
    """Seconds by part, the most first; waiting for events is none of them."""
    child.send_signal(signal.SIGTERM)
    child.wait()
    spent = Counter[str]()
    stats = pstats.Stats(str(home / "profile")).stats  # type: ignore[attr-defined]  # not in typeshed
    for (file, _, name), (_, _, own, _, _) in stats.items():
        if "'poll'" not in name:
            spent[part_of(file, name)] += own
    return dict(spent.most_common())


def part_of(file: str, name: str) -> str:
    if file == "~":
        return "kernel" if any(mark in name for mark in KERNEL) else "built in"
    folders = Path(file).parts
    return next((part for part in PARTS if part in folders), "standard library")
