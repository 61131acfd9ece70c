"""What starting turnlane imports: nothing that only few of its processes use."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "proxy.config.load",
        "proxy.cli.main",
        "proxy.runtime",
        "proxy.process.serve",
        "proxy.cli.status",
        "proxy.status.reachability",
    ],
)
def test_httpx_is_imported_only_where_a_proxy_needs_it(module: str) -> None:
    program = f"import {module}, sys; sys.exit('httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)

    assert done.returncode == 0
