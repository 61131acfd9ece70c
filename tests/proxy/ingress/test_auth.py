"""Who calls: where a key is looked for, whom it stands for, and who comes without one."""

from pathlib import Path

import pytest

from lifecycle import PrincipalId
from proxy.config.load import Config
from proxy.config.settings import ServerSettings
from proxy.errors import ConfigError
from proxy.ingress.auth import caller, may_call
from proxy.ingress.identity import LOCAL
from proxy.keys import IssuedKey, KeyRing
from proxy.refusal import Refused
from proxy.runtime import open_runtime


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    return KeyRing(tmp_path)


@pytest.fixture
def made(ring: KeyRing) -> IssuedKey:
    return ring.add("one")


def who(ring: KeyRing, *headers: tuple[str, str], host: str = "127.0.0.1") -> str:
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    found = caller(ring, host, pairs)
    return "a stranger" if isinstance(found, Refused) else found


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "LOCALHOST"])
def test_without_keys_everybody_on_this_machine_is_local(host: str, ring: KeyRing) -> None:
    assert who(ring, host=host) == LOCAL
    assert who(ring, ("x-turnlane-key", "tl_whatever"), host=host) == LOCAL


def test_a_key_stands_for_its_principal_wherever_it_is(ring: KeyRing, made: IssuedKey) -> None:
    for name, value in (
        ("x-turnlane-key", made.secret),
        ("x-api-key", made.secret),
        ("authorization", f"Bearer {made.secret}"),
        ("authorization", f"bearer   {made.secret} "),
        ("Authorization", f"Bearer\t{made.secret}"),
        ("X-Turnlane-Key", f" {made.secret} "),
    ):
        assert who(ring, (name, value)) == made.key.id, name


def test_with_keys_nobody_comes_without_a_good_one(ring: KeyRing, made: IssuedKey) -> None:
    for headers in (
        (),
        (("x-turnlane-key", ""),),
        (("x-turnlane-key", made.secret[3:]),),
        (("x-turnlane-key", made.key.id),),
        (("x-turnlane-key", "tl_\xff"),),
        (("x-api-key", "sk-provider"),),
        (("authorization", "Bearer sk-provider"),),
        (("authorization", f"Bearer sk-{made.secret}"),),
        (("authorization", "Bearer"),),
    ):
        assert who(ring, *headers) == "a stranger", headers


def test_the_first_place_decides(ring: KeyRing, made: IssuedKey) -> None:
    good = made.secret

    assert (
        who(ring, ("authorization", f"Bearer {good}"), ("x-turnlane-key", "tl_bad")) != made.key.id
    )
    assert who(ring, ("authorization", "Bearer tl_bad"), ("x-api-key", good)) == made.key.id
    assert who(ring, ("x-api-key", "tl_bad"), ("authorization", f"Bearer {good}")) != made.key.id
    assert who(ring, ("x-api-key", "tl_bad"), ("x-turnlane-key", good)) == made.key.id


def test_a_providers_key_beside_ours_is_nobodys_business(ring: KeyRing, made: IssuedKey) -> None:
    provider = [("authorization", "Bearer sk-provider"), ("x-api-key", "sk-other")]

    assert who(ring, *provider, ("x-turnlane-key", made.secret)) == made.key.id
    assert who(ring, provider[1], ("authorization", f"Bearer {made.secret}")) == made.key.id


def test_keys_take_effect_live_in_both_directions(ring: KeyRing) -> None:
    host = "127.0.0.1"
    assert may_call(ring, host, LOCAL)

    made = ring.add("one")
    principal = PrincipalId(made.key.id)
    assert not may_call(ring, host, LOCAL)
    assert may_call(ring, host, principal)

    ring.revoke(made.key.id)
    assert not may_call(ring, host, principal)
    assert may_call(ring, host, LOCAL)


def test_an_address_open_to_others_stays_shut_without_its_last_key(
    ring: KeyRing, made: IssuedKey
) -> None:
    ring.revoke(made.key.id)

    assert who(ring, host="0.0.0.0") == "a stranger"
    assert who(ring, ("x-turnlane-key", made.secret), host="0.0.0.0") == "a stranger"
    assert not may_call(ring, "0.0.0.0", LOCAL)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "", "192.168.1.7", "::", "fe80::1", "desk.example", "127.0.0.1.evil"]
)
async def test_an_address_open_to_others_does_not_start_without_keys(
    host: str, tmp_path: Path
) -> None:
    config = Config(server=ServerSettings(host=host), home=tmp_path)
    with pytest.raises(ConfigError, match="needs keys") as raised:
        async with open_runtime(config):
            pass

    assert raised.value.key == "server.host"
    KeyRing(tmp_path).add("one")
    async with open_runtime(config) as started:
        assert len(started.keys) == 1
