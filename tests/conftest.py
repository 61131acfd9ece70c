"""What holds for every test: the same Hypothesis examples, no secret in a log, exact snapshots."""

from collections.abc import Generator
from typing import Final

import pytest
from hypothesis import Phase, settings

from tests.testkit.snapshots import Snapshot, key_of

settings.register_profile(
    "thorough",
    derandomize=True,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],  # to explain takes longer than to fix
)
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=30)
settings.load_profile("quick")
"""CI asks for the thorough one: `make test PROFILE=thorough`."""

MARK: Final = "-secret-"
"""Part of every key and token in the tests: `sk-secret-1`, `rt-secret-1`."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.passed and MARK in report.caplog:
        report.outcome = "failed"
        report.longrepr = f"a secret was logged:\n{report.caplog}"
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-snapshots", action="store_true", help="Rewrite tests/snapshots from this run."
    )


@pytest.fixture
def snapshot(request: pytest.FixtureRequest) -> Snapshot:
    """Compares wording with the entries of this test in `tests/snapshots`."""
    update = request.config.getoption("update_snapshots")
    return Snapshot(key_of(request.node), update=update)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    used = getattr(item, "funcargs", {}).get("snapshot")
    if isinstance(used, Snapshot):
        used.finish()
    return result
