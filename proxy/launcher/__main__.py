"""`turnlane` and `python -m turnlane`: run the command line with turnlane's own folders first."""

import sys
from pathlib import Path


def root(file: Path) -> Path:
    """Return the folder that holds `proxy`, `lifecycle` and `harness`.

    It is the nearest one above `file`: the package itself where it is installed, the repository
    where the installation is editable.
    """
    return next(x for x in file.parents if (x / "lifecycle" / "__init__.py").is_file())


def main() -> None:
    """Run the command line; a `proxy` in the working directory or in site-packages is not seen."""
    sys.path.insert(0, str(root(Path(__file__))))
    from proxy.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
