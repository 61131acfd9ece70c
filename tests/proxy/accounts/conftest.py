"""The login of most tests here: its access token has just expired."""

from pathlib import Path

import pytest

from tests.testkit.accounts import EXPIRED, document, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "auth.json"
    write(file, document(EXPIRED))
    return file
