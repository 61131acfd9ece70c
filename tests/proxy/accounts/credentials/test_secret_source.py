"""References: a secret is found where the configuration says, and shown nowhere."""

from pathlib import Path

import pytest

from proxy.accounts.credentials.secret_source import SECRET_BYTES, load_reference
from tests.testkit.snapshots import Snapshot


def test_a_variable_is_read(tmp_path: Path) -> None:
    loaded = load_reference("env:KEY", {"KEY": "sk-secret\n"})

    assert (loaded.secret, loaded.note) == ("sk-secret", None)


def test_a_file_is_read_without_its_line_end(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-secret\r\n")
    file.chmod(0o600)

    loaded = load_reference(f"file:{file}", {})

    assert (loaded.secret, loaded.note) == ("sk-secret", None)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_file_that_others_can_read_is_read_with_a_note(
    mode: int, tmp_path: Path, snapshot: Snapshot
) -> None:
    file = tmp_path / "key"
    file.write_text("sk-secret")
    file.chmod(mode)

    loaded = load_reference(f"file:{file}", {})

    assert loaded.secret == "sk-secret"
    assert f"chmod 600 {file}" in (loaded.note or "")
    snapshot("errors", loaded.note, file=file)


@pytest.mark.parametrize("reference", ["", "sk-secret", "env:", "file:", "vault:secret"])
def test_an_invalid_reference_is_not_repeated(reference: str) -> None:
    with pytest.raises(ValueError, match="env:NAME or file:PATH") as caught:
        load_reference(reference, {})

    assert "secret" not in str(caught.value).replace("the secret itself", "")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" \n",
        b"sk-secret\nsk-secret",
        b"\xffsk-secret",
        b"sk-secret" * SECRET_BYTES,
    ],
    ids=["empty", "blank", "two-lines", "binary", "large"],
)
def test_a_file_without_a_secret_is_explained(
    content: bytes, tmp_path: Path, snapshot: Snapshot
) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(ValueError, match="key") as caught:
        load_reference(f"file:{tmp_path / 'key'}", {})

    assert "sk-secret" not in str(caught.value)
    snapshot("errors", caught.value, folder=tmp_path)


def test_a_missing_secret_is_named(tmp_path: Path, snapshot: Snapshot) -> None:
    with pytest.raises(ValueError, match="NAME") as unset:
        load_reference("env:NAME", {})
    with pytest.raises(ValueError, match="key") as missing:
        load_reference(f"file:{tmp_path / 'key'}", {})

    snapshot("errors", unset.value, missing.value, folder=tmp_path)


def test_a_loaded_secret_is_not_shown() -> None:
    assert "sk-secret" not in repr(load_reference("env:KEY", {"KEY": "sk-secret"}))
