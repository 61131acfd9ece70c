"""The wheel owns one name: turnlane and PyPI's proxy.py live in one environment, in any order."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from proxy import __version__

pytestmark = pytest.mark.load

ROOT = Path(__file__).parents[2]
PACKED = ("proxy", "lifecycle", "harness")
FILES = ("setup.py", "pyproject.toml", "README.md", "LICENSE")
OTHER = "proxy.py"
NO_DEPENDENCY = ("turnlane", "__editable__", "proxy", "pip", "setuptools", "pkg_resources")
SECONDS = 120

BUILD = """
import setuptools.build_meta as backend
backend.build_sdist("dist")
backend.build_wheel("dist")
"""
PLAIN_IMPORT = """
import sys
before = [*sys.path]
import turnlane
assert sys.path == before
assert not {"proxy", "lifecycle", "harness"} & sys.modules.keys()
print(turnlane.__version__)
"""
FOREIGN_MODULES = """
import runpy, sys
sys.argv = ["turnlane", "check"]
try:
    runpy.run_module("turnlane", run_name="__main__")
except SystemExit:
    pass
modules = [x for name, x in sys.modules.items() if name.partition(".")[0] == "proxy"]
print(len(modules) > 9, [x for x in modules if not x.__file__.startswith(sys.path[0])])
"""


@dataclass(frozen=True)
class Venv:
    """An environment with turnlane's dependencies; `elsewhere` is where its programs run."""

    path: Path
    elsewhere: Path

    def run(self, program: str, *arguments: str) -> str:
        """Return what `program` prints; fail with that when it does not exit with 0."""
        return output([str(self.path / "bin" / program), *arguments], self.elsewhere)

    def pip(self, *arguments: str) -> None:
        self.run("python", "-m", "pip", "--disable-pip-version-check", *arguments)

    def install(self, package: str) -> None:
        self.pip("install", "--no-deps", package)

    def uninstall(self, package: str) -> None:
        self.pip("uninstall", "-y", package)

    def has(self, module: str) -> bool:
        code = f"from importlib.util import find_spec; print(find_spec({module!r}) is not None)"
        return self.run("python", "-P", "-c", code).strip() == "True"


def output(command: Sequence[str], cwd: Path) -> str:
    environment = {x: y for x, y in os.environ.items() if not x.startswith(("PYTHON", "TURNLANE_"))}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**environment, "TURNLANE_HOME": str(cwd / "home")},
        check=False,
        timeout=SECONDS,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def make_venv(folder: Path) -> Venv:
    """Link the dependencies from this environment instead of installing them: it takes no time."""
    elsewhere, path, linked = folder / "elsewhere", folder / "venv", folder / "dependencies"
    for name in PACKED:
        (elsewhere / name).mkdir(parents=True)
        (elsewhere / name / "__init__.py").write_text(f"raise ImportError('a foreign {name}')\n")
    linked.mkdir()
    for entry in Path(trio.__file__).parents[1].iterdir():
        if not entry.name.startswith(NO_DEPENDENCY) and entry.suffix != ".pth":
            (linked / entry.name).symlink_to(entry)
    output([sys.executable, "-m", "venv", str(path)], folder)
    (packages,) = path.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{linked}\n")
    return Venv(path, elsewhere)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as a build reads it, with what a build of an older layout has left."""
    folder = tmp_path_factory.mktemp("source")
    for name in PACKED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    (folder / "build" / "lib" / "proxy").mkdir(parents=True)
    (folder / "build" / "lib" / "proxy" / "left.py").touch()
    return folder


@pytest.fixture(scope="module")
def builder(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Venv:
    """An environment in which `source` has been built, into its `dist`."""
    venv = make_venv(tmp_path_factory.mktemp("builder"))
    venv.pip("install", "setuptools>=77", "wheel")
    output([str(venv.path / "bin" / "python"), "-c", BUILD], source)
    return venv


@pytest.fixture(scope="module")
def wheel(source: Path, builder: Venv) -> Path:
    (path,) = (source / "dist").glob("*.whl")
    return path


def contents(wheel: Path) -> dict[str, int]:
    """The checksum of each file in a wheel, by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {x.filename: x.CRC for x in archive.infolist() if not x.filename.endswith("RECORD")}


def assert_turnlane_works(venv: Venv) -> None:
    assert venv.run("turnlane", "--version").strip() == __version__
    assert venv.run("python", "-m", "turnlane", "--version").strip() == __version__
    assert venv.run("python", "-P", "-c", PLAIN_IMPORT).strip() == __version__
    assert venv.run("python", "-P", "-c", FOREIGN_MODULES).endswith("True []\n")
    venv.run("turnlane", "recall", "--sessions", "1", "--rounds", "1")
    assert_it_serves(venv)


def assert_it_serves(venv: Venv) -> None:
    """Start it as a service unit does, and stop it."""
    command = [str(venv.path / "bin" / "python"), "-P", "-m", "turnlane", "serve", "--port", "0"]
    environment = {"PATH": os.defpath, "TURNLANE_HOME": str(venv.elsewhere / "home")}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=venv.elsewhere, env=environment, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        process.terminate()
        _, log = process.communicate(timeout=SECONDS)

    assert ready.startswith(f"turnlane {__version__} ready on http://127.0.0.1:"), log
    assert process.returncode == 0
    assert log.splitlines()
    assert all(" turnlane INFO " in line for line in log.splitlines()), log


def assert_the_other_works(venv: Venv) -> None:
    assert venv.run("python", "-P", "-c", "import proxy; print(proxy.main.__name__)") == "main\n"
    assert venv.run("proxy", "--version").startswith("2.")


def test_wheel_and_sdist_have_one_top_level_name(
    source: Path, builder: Venv, wheel: Path, tmp_path: Path
) -> None:
    (sdist,) = (source / "dist").glob("*.tar.gz")
    builder.pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(sdist))
    (from_sdist,) = tmp_path.glob("*.whl")
    info = f"turnlane-{__version__}.dist-info"

    assert contents(from_sdist) == contents(wheel)
    assert {name.partition("/")[0] for name in contents(wheel)} == {"turnlane", info}
    assert {f"turnlane/{x}" for x in ("py.typed", "__main__.py", "proxy/cli/main.py")} <= {
        *contents(wheel)
    }
    packed = {x.relative_to(source) for name in PACKED for x in (source / name).rglob("*.py")}
    launcher = {x for x in packed if x.parts[1] == "launcher"}
    expected = {f"turnlane/{x}" for x in packed - launcher}
    assert {x for x in contents(wheel) if x.count("/") > 1 and x.endswith(".py")} == expected


@pytest.mark.parametrize("first", ["turnlane", OTHER])
def test_both_work_in_one_environment_and_survive_each_other(
    first: str, wheel: Path, tmp_path: Path
) -> None:
    venv = make_venv(tmp_path)
    works = {"turnlane": assert_turnlane_works, OTHER: assert_the_other_works}
    archive = {"turnlane": str(wheel), OTHER: OTHER}
    module = {"turnlane": "turnlane", OTHER: "proxy"}
    second = OTHER if first == "turnlane" else "turnlane"
    for name in (first, second):
        venv.install(archive[name])
    for works_now in works.values():
        works_now(venv)
    for gone, stays in ((first, second), (second, first)):
        venv.uninstall(gone)

        assert not venv.has(module[gone])
        works[stays](venv)
        venv.install(archive[gone])


def test_a_defect_is_injected_into_turnlane_and_not_into_the_other(
    wheel: Path, tmp_path: Path
) -> None:
    venv = make_venv(tmp_path)
    for archive in (OTHER, str(wheel)):
        venv.install(archive)
    line = "recall --sessions 1 --rounds 3 --inject leak"
    with pytest.raises(AssertionError, match="everything is zero afterwards"):
        venv.run("turnlane", *line.split())


def test_an_editable_installation_runs_the_repository(source: Path, builder: Venv) -> None:
    builder.install(OTHER)
    builder.pip("install", "--no-deps", "--no-build-isolation", "-e", str(source))

    assert_turnlane_works(builder)
    assert_the_other_works(builder)
