"""CPU time and memory of a process and all its descendants, from /proc."""

import os
from pathlib import Path

PROC = Path("/proc")


def tree(pid: int) -> list[int]:
    """The process and its descendants."""
    found = [pid]
    for parent in found:
        for children in PROC.glob(f"{parent}/task/*/children"):
            found += map(int, _read(children).split())
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of the tree, to the nanosecond."""
    threads = (thread for each in tree(pid) for thread in PROC.glob(f"{each}/task/*/schedstat"))
    return sum(int((_read(thread).split() or ["0"])[0]) for thread in threads) / 1e9


def rss_mb(pid: int) -> float:
    pages = (
        int((_read(PROC / str(each) / "statm").split() or ["0", "0"])[1]) for each in tree(pid)
    )
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20


def machine() -> str:
    """Names what figures can be compared with."""
    boot = _read(PROC / "sys/kernel/random/boot_id").strip()
    cpu = next((x for x in _read(PROC / "cpuinfo").splitlines() if x.startswith("model name")), "")
    return f"{cpu.partition(':')[2].strip()}, {os.cpu_count()} CPUs, boot {boot[:8]}"


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:  # it has ended meanwhile
        return ""
