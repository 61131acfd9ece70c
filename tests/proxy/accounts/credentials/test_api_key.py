"""API keys: found where the configuration says, sent as a bearer, and shown nowhere."""

from pathlib import Path

import pytest

from proxy.accounts.credentials.api_key import ApiKey
from proxy.accounts.credentials.secret_source import SECRET_BYTES, load_reference
from tests.testkit.runtime import WALL
from tests.testkit.snapshots import Snapshot


def test_a_variable_or_a_file_is_read_without_its_line_end(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-secret\r\n")
    file.chmod(0o600)

    for reference in ("env:KEY", f"file:{file}"):
        loaded = load_reference(reference, {"KEY": "sk-secret\n"})
        assert (loaded.secret, loaded.note) == ("sk-secret", None)
        assert "sk-secret" not in repr(loaded)


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


async def test_a_key_is_a_bearer_with_what_it_was_given() -> None:
    whole = ApiKey(secret="sk-secret", organization="org-1", project="proj_1")

    assert await ApiKey(secret="sk-secret").headers(WALL) == [
        (b"authorization", b"Bearer sk-secret")
    ]
    assert await whole.headers(WALL) == [
        (b"authorization", b"Bearer sk-secret"),
        (b"openai-organization", b"org-1"),
        (b"openai-project", b"proj_1"),
    ]


def test_a_key_has_a_fingerprint_of_its_own() -> None:
    one, other = ApiKey(secret="sk-one"), ApiKey(secret="sk-other")

    assert one.fingerprint == ApiKey(secret="sk-one", project="p").fingerprint
    assert one.fingerprint != other.fingerprint
    assert len(one.fingerprint) == 32
    assert "sk-one" not in f"{one!r} {one.fingerprint}"


@pytest.mark.parametrize("secret", ["", "a b", "a\n", "é"])
def test_a_key_that_no_header_can_hold_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="visible ASCII"):
        ApiKey(secret=secret)
