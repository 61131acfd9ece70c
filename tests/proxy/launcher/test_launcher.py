"""The launcher and the harness's children find turnlane's folders before others of those names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from harness.child import ROOT, python, with_path
from proxy import __version__
from proxy.launcher import __main__ as launcher


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A working directory with folders of the same names."""
    for name in ("proxy", "lifecycle", "harness"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise ImportError('a foreign {name}')\n")
    return tmp_path


def printed(command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> str:
    done = subprocess.run(
        command, env=environment, cwd=cwd, check=False, timeout=60, text=True, capture_output=True
    )
    return f"{done.stdout}{done.stderr}".strip()


@pytest.mark.parametrize(
    ("launched", "holder"),
    [
        ("site-packages/turnlane/__main__.py", "site-packages/turnlane"),
        ("repository/proxy/launcher/__main__.py", "repository"),
    ],
)
def test_the_folders_are_found_in_an_installation_and_in_the_repository(
    tmp_path: Path, launched: str, holder: str
) -> None:
    (tmp_path / holder / "lifecycle").mkdir(parents=True)
    (tmp_path / holder / "lifecycle" / "__init__.py").touch()

    assert launcher.root(tmp_path / launched) == tmp_path / holder


def test_the_launcher_sees_no_foreign_folder(elsewhere: Path) -> None:
    foreign = {**os.environ, "PYTHONPATH": str(elsewhere)}
    command = [sys.executable, str(launcher.__file__), "version"]

    assert printed(command, foreign, elsewhere) == __version__


def test_a_child_of_the_harness_sees_no_foreign_folder(elsewhere: Path) -> None:
    foreign = {**os.environ, "PYTHONPATH": str(elsewhere)}

    assert printed(python("proxy", "version"), with_path(foreign), elsewhere) == __version__


def test_the_path_of_the_user_comes_after_turnlanes_own() -> None:
    assert with_path({"PYTHONPATH": "/theirs"}) == {"PYTHONPATH": f"{ROOT}{os.pathsep}/theirs"}
    assert with_path({}) == {"PYTHONPATH": str(ROOT)}
