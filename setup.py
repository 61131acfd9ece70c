"""Pack the repository's folders inside one package, `turnlane` (docs/decisions/0011-one-name.md).

The metadata is in pyproject.toml.
"""

from shutil import rmtree

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

LAUNCHER = "proxy.launcher"
FOLDERS = ("lifecycle", "proxy", "harness")


class BuildFresh(build_py):
    """Build into an empty folder: the wheel gets all of it, also what an older one left."""

    def run(self) -> None:
        if not self.editable_mode:
            rmtree(self.build_lib, ignore_errors=True)
        super().run()


inside = find_packages(include=[x for name in FOLDERS for x in (name, f"{name}.*")])
setup(
    packages=["turnlane", *(f"turnlane.{name}" for name in inside if name != LAUNCHER)],
    package_dir={
        "turnlane": LAUNCHER.replace(".", "/"),
        **{f"turnlane.{name}": name for name in FOLDERS},
    },
    package_data={"turnlane": ["py.typed"]},
    cmdclass={"build_py": BuildFresh},
)
