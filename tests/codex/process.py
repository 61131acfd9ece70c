"""What every process of these tests gets: an environment without surprises, and a sure end."""

from __future__ import annotations

import os
from pathlib import Path

_KEPT = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "SSL_CERT_FILE")


def environment(home: Path, **more: str) -> dict[str, str]:
    """Nothing of the caller's settings, no HTTP proxy between loopback and loopback."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, "HOME": str(home), "TERM": "xterm", **more}
