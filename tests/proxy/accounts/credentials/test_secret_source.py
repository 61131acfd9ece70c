"""References: a secret is found where the configuration says, and shown nowhere."""

from pathlib import Path

import pytest

from proxy.accounts.credentials.secret_source import SECRET_BYTES, load_reference


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
def test_a_file_for_others_is_read_with_a_note(mode: int, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-secret")
    file.chmod(mode)

    loaded = load_reference(f"file:{file}", {})

    assert loaded.secret == "sk-secret"
    assert loaded.note == f"{file} can be read by others: chmod 600 it"


@pytest.mark.parametrize("reference", ["", "sk-secret", "env:", "file:", "vault:secret"])
def test_what_is_no_reference_is_not_repeated(reference: str) -> None:
    with pytest.raises(ValueError, match="env:NAME or file:PATH") as caught:
        load_reference(reference, {})

    assert "secret" not in str(caught.value).replace("a secret itself", "")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"sk-secret\nsk-secret", "more than one line"),
        (b"\xffsk-secret", "is not text"),
        (b"sk-secret" * SECRET_BYTES, "too large"),
    ],
)
def test_a_file_that_holds_no_secret_says_so(content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(ValueError, match=problem) as caught:
        load_reference(f"file:{tmp_path / 'key'}", {})

    assert "sk-secret" not in str(caught.value)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="NAME is empty or not there"):
        load_reference("env:NAME", {})
    with pytest.raises(ValueError, match="key cannot be read: No such file"):
        load_reference(f"file:{tmp_path / 'key'}", {})


def test_a_loaded_secret_is_not_shown() -> None:
    assert "sk-secret" not in repr(load_reference("env:KEY", {"KEY": "sk-secret"}))
