"""Resident memory of the child as the system tells it: shown in the report, never judged."""

import re
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(r"^(VmRSS|VmHWM):\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """In bytes; the peak is that of the process's whole life."""

    now: int
    peak: int


def read_resident(pid: int | None, proc: Path = Path("/proc")) -> Resident | None:
    """None without a pid, and on systems that do not say."""
    if pid is None:
        return None
    try:
        told = dict(_LINE.findall((proc / str(pid) / "status").read_text()))
        return Resident(now=1024 * int(told["VmRSS"]), peak=1024 * int(told["VmHWM"]))
    except (OSError, KeyError):
        return None
