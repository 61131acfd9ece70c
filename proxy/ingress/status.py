"""Status: every `statistics()` in one document, and nothing else."""

import os
from typing import Any

import msgspec
import trio

from proxy import __version__
from proxy.home.draining import drains
from proxy.runtime import Runtime

BUSIEST_ROOTS = 5


def status(runtime: Runtime) -> dict[str, Any]:
    """Return the answer of `/status`. It counts what this process did since it started."""
    admission = runtime.admission.statistics()
    journal = runtime.journal.statistics()
    return {
        "service": "turnlane",
        "version": __version__,
        "pid": os.getpid(),
        "uptime_seconds": round(trio.current_time() - runtime.started, 3),
        "state": "draining" if runtime.admission.draining else "ready",
        "draining": msgspec.to_builtins(drains(runtime.config.home)),
        "lanes": msgspec.to_builtins(admission.lanes),
        "turns": msgspec.to_builtins(admission.turns),
        "websockets": msgspec.to_builtins(admission.websockets),
        "memory": msgspec.to_builtins(admission.memory),
        "workflows": {
            **msgspec.to_builtins(admission.workflows),
            "busiest": _busiest(runtime),
        },
        **_accounts(runtime),
        "refusals": dict(journal.refusals),
        "outcomes": dict(journal.outcomes),
        "journal": {"queued": journal.queued, "lost": journal.lost},
    }


def _accounts(runtime: Runtime) -> dict[str, Any]:
    """Return each account, and the sums of their last hour."""
    each = runtime.accounts.statistics()
    if not each:
        return {"accounts": []}
    names = ("turns", "cold_starts", "cached_tokens", "uncached_tokens")
    totals = {name: sum(getattr(one.last_hour, name) for one in each) for name in names}
    return {"accounts": msgspec.to_builtins(each), "last_hour": totals}


def _busiest(runtime: Runtime) -> list[dict[str, Any]]:
    """Return the roots with the most turns, then the most sends in the window, as digests."""
    each = runtime.admission.workflows.each(trio.current_time())
    order = sorted(
        each.items(),
        key=lambda item: (item[1].active, item[1].worker_sends + item[1].interactive_sends),
        reverse=True,
    )
    return [{"root": root, **msgspec.to_builtins(budget)} for root, budget in order[:BUSIEST_ROOTS]]
