"""Keys: shown once, kept as hashes, changed live."""

import stat
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.keys import KEYS_NAME, MOST_KEYS, NAME_CHARACTERS, KeyRing


def test_a_key_is_known_by_its_secret_and_by_nothing_else(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    one, other = ring.add("one"), ring.add("other")

    assert ring.holder(one.secret) == one.key.id
    assert ring.holder(other.secret) == other.key.id
    for wrong in (
        "",
        "tl_",
        one.secret[:-1],
        one.secret + "x",
        one.key.id,
        one.key.sha256,
        "\ud800",
    ):
        assert ring.holder(wrong) is None


def test_a_key_looks_like_one_and_cannot_be_guessed(tmp_path: Path) -> None:
    secrets = {KeyRing(tmp_path).add("one").secret for _ in range(9)}

    assert len(secrets) == 9
    assert all(secret.startswith("tl_") and len(secret) == 46 for secret in secrets)


def test_what_is_kept_is_a_hash_that_only_its_owner_can_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made = KeyRing(home, wall=lambda: 5.0).add("one")
    kept = (home / KEYS_NAME).read_bytes()

    assert made.secret.encode() not in kept
    assert made.secret[3:].encode() not in kept
    assert made.key.sha256.encode() in kept
    assert stat.S_IMODE((home / KEYS_NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert list(home.iterdir()) == [home / KEYS_NAME]


def test_keys_outlive_the_process(tmp_path: Path) -> None:
    made = KeyRing(tmp_path, wall=lambda: 5.0).add("one")
    again = KeyRing(tmp_path)

    assert again.all() == (made.key,)
    assert (made.key.name, made.key.created) == ("one", 5.0)
    assert again.holder(made.secret) == made.key.id


def test_a_revoked_key_is_gone_at_once_and_for_good(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    made, other = ring.add("one"), ring.add("other")

    assert ring.knows(ring.holder(made.secret) or other.key.id)  # type: ignore[arg-type]
    assert ring.revoke(made.key.id)
    for known in (ring, KeyRing(tmp_path)):
        assert known.holder(made.secret) is None
        assert known.all() == (other.key,)
    assert not ring.revoke(made.key.id)


@pytest.mark.parametrize("name", ["", "x" * (NAME_CHARACTERS + 1), "a\nb", "\x1b[31m", "\ud800"])
def test_a_name_can_be_shown(name: str, tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    with pytest.raises(ValueError, match="1 to 100"):
        ring.add(name)

    assert len(ring) == 0


def test_the_number_of_keys_is_bounded(tmp_path: Path) -> None:
    full = [
        {"id": f"key-{i}", "name": "x", "sha256": "0" * 64, "created": 0.0}
        for i in range(MOST_KEYS)
    ]
    (tmp_path / KEYS_NAME).write_text(str(full).replace("'", '"'))
    ring = KeyRing(tmp_path)
    with pytest.raises(ValueError, match="256"):
        ring.add("one more")

    assert len(ring) == MOST_KEYS


def test_what_cannot_be_kept_does_not_take_effect(tmp_path: Path) -> None:
    home = tmp_path / "home"
    ring = KeyRing(home)
    made = ring.add("one")
    (home / KEYS_NAME).unlink()
    home.rmdir()
    home.write_text("no directory")
    with pytest.raises(OSError):  # noqa: PT011  whichever the system says
        ring.add("another")
    with pytest.raises(OSError):  # noqa: PT011
        ring.revoke(made.key.id)

    assert ring.all() == (made.key,)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'[{"id":"x"}]', b"\xff"])
def test_a_file_that_is_none_of_ours_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / KEYS_NAME).write_bytes(content)
    with pytest.raises(ConfigError, match=KEYS_NAME):
        KeyRing(tmp_path)
