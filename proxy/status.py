"""Status: every `statistics()` in one document, and nothing else."""

import os
from typing import Any

import msgspec
import trio

from proxy import __version__
from proxy.runtime import Runtime


def status(runtime: Runtime) -> dict[str, Any]:
    """What `/status` answers. Counts are of this process, since it started."""
    admission = runtime.admission.statistics()
    journal = runtime.journal.statistics()
    return {
        "service": "turnlane",
        "version": __version__,
        "pid": os.getpid(),
        "uptime_seconds": round(trio.current_time() - runtime.started, 3),
        "state": "draining" if runtime.admission.draining else "ready",
        "lanes": msgspec.to_builtins(admission.lanes),
        "turns": msgspec.to_builtins(admission.turns),
        "websockets": msgspec.to_builtins(admission.websockets),
        "memory": msgspec.to_builtins(admission.memory),
        "refusals": dict(journal.refusals),
        "outcomes": dict(journal.outcomes),
    }
