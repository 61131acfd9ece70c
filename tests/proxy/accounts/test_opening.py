"""Opening accounts: what cannot serve is there all the same, and says why."""

import logging
from pathlib import Path

import pytest

from proxy.accounts.account import Account
from proxy.accounts.opening import inspect_accounts
from proxy.accounts.spec import AccountSpec
from proxy.accounts.view import ANY, AccountId, Standing
from proxy.config.load import Config
from proxy.errors import ConfigError
from tests.testkit.accounts import access, document, write
from tests.testkit.runtime import WALL, opener

WORK = AccountId("work")


def standing(known: Account) -> tuple[Standing, str | None]:
    return known.view().standing(ANY, WALL), known.problem(WALL)


def inspected(spec: AccountSpec, **secrets: str) -> str | None:
    found = inspect_accounts(Config(accounts={WORK: spec}, secrets=secrets))
    return found[0] if found else None


def test_a_login_that_is_missing_waits_for_its_owner_to_sign_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "none.json"
    known = opener().open(WORK, AccountSpec(auth_json=str(path)))
    missing = standing(known)
    write(path, document(access(1)))

    assert missing == (Standing.INVALID, "its auth.json is gone: sign in again")
    assert "account work cannot serve: its auth.json is gone" in caplog.text
    assert standing(known) == (Standing.READY, None)


def test_a_key_that_cannot_be_read_is_out_of_use_with_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = AccountSpec(key=f"file:{tmp_path / 'none'}")
    known = opener().open_anyway(WORK, spec)

    state, problem = standing(known)
    assert state is Standing.INVALID
    assert problem is not None
    assert problem.startswith("not readable: ")
    assert problem in caplog.text


def test_a_key_for_everybody_to_read_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "key"
    file.write_text("sk-secret-one")
    file.chmod(0o644)
    spec = AccountSpec(key=f"file:{file}")
    known = opener().open(WORK, spec)

    assert standing(known) == (Standing.READY, None)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "chmod 600" in caplog.text
    assert "secret" not in caplog.text
    assert "chmod 600" in (inspected(spec) or "")


def test_an_inspection_says_what_opening_would(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    login = AccountSpec(auth_json=str(path))
    missing = inspected(login)
    write(path, document(access(1)))

    assert "accounts.work" in (missing or "")
    assert inspected(login) is None
    assert inspected(AccountSpec(key="env:KEY"), KEY="sk-secret-one") is None
    with pytest.raises(ConfigError, match=r"accounts\.work\.key: .*KEY"):
        inspected(AccountSpec(key="env:KEY"))
    with pytest.raises(ConfigError, match="ASCII"):
        inspected(AccountSpec(key="env:KEY"), KEY="sk-secret one")
