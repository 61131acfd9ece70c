"""Config: every default works, and whatever is wrong is named as the operator wrote it."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from lifecycle import Limits, Overlap, WorkflowLimits
from proxy.accounts.opening import inspect_accounts
from proxy.accounts.route import RoutingSettings
from proxy.config.load import Config, load
from proxy.config.settings import ClientSettings, ServerSettings, UpstreamSettings
from proxy.errors import ConfigError
from proxy.home.lock import home_of
from tests.testkit.snapshots import Snapshot

SECTIONS: Mapping[str, type] = {
    "server": ServerSettings,
    "client": ClientSettings,
    "upstream": UpstreamSettings,
    "workflow": WorkflowLimits,
    "routing": RoutingSettings,
}
LIMITS = {
    "turns.limit": "turns",
    "lanes.limit": "lanes",
    "lanes.kept": "lanes_kept",
    "lanes.overlap": "overlap",
    "lanes.settle_seconds": "settle_seconds",
    "lanes.client_gone_seconds": "client_gone_seconds",
    "websockets.limit": "websockets",
    "memory.limit_bytes": "memory_bytes",
}


def kinds() -> Iterator[tuple[str, object]]:
    """Every key, and the type of its value."""
    for section, kind in SECTIONS.items():
        hints = get_type_hints(kind)
        yield from ((f"{section}.{field.name}", hints[field.name]) for field in fields(kind))
    hints = get_type_hints(Limits)
    yield from ((key, hints[name]) for key, name in LIMITS.items())


KINDS = dict(kinds())
NUMBERS = [key for key, kind in KINDS.items() if kind in (int, float)]
SPECIAL = {
    "server.host": ("::1", "::1"),
    "server.hosts": (["a", "b"], ("a", "b")),
    "server.origins": (["https://a"], ("https://a",)),
    "upstream.url": ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
    "upstream.refresh_url": ("http://127.0.0.1:8080/token", "http://127.0.0.1:8080/token"),
    "routing.cache_affinity": (False, False),
    "routing.strategy": ("fill_first", "fill_first"),
    "lanes.overlap": ("share", Overlap.SHARE),
    "workflow.kept": (3, 3),
}
BAD_NUMBERS = (-1, math.nan, math.inf, -math.inf, "1")
DOCUMENT = Path(__file__).parents[3] / "docs" / "config.md"


def said(*keys: tuple[str, object]) -> Config:
    """What comes of keys and their values, as a file or flags have them."""
    tables: dict[str, dict[str, object]] = {}
    for key, value in keys:
        section, _, name = key.partition(".")
        tables.setdefault(section, {})[name] = value
    return load(None, {}, tables)


def wrong(*keys: tuple[str, object]) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        said(*keys)
    return raised.value


def found(config: Config, key: str) -> Any:
    if key in LIMITS:
        return getattr(config.limits, LIMITS[key])
    section, _, name = key.partition(".")
    holder = config.limits if section == "workflow" else config
    return getattr(getattr(holder, section), name)


def documented() -> Iterator[tuple[str, str]]:
    """Every key of the document with its default, as they stand in its tables."""
    section = ""
    for line in DOCUMENT.read_text("utf-8").splitlines():
        if line.startswith("#"):
            section = line.removeprefix("## [").rstrip("]")
        cells = line.split("|")
        if section in SECTIONS or "], [" in section:
            keys, defaults = (re.findall("`([^`]+)`|none", cell) for cell in cells[1:3] or ("", ""))
            prefix = f"{section}." if section in SECTIONS else ""
            yield from zip((prefix + key for key in keys), defaults, strict=True)


# What is good.


def test_without_a_word_everything_has_its_default(tmp_path: Path) -> None:
    assert load(None, {}, {}) == in_file(tmp_path, "[server]\n") == Config(home=home_of({}))


@pytest.mark.parametrize("key", KINDS)
def test_every_key_can_be_set(key: str) -> None:
    value, read = SPECIAL.get(key, (33, 33))
    config = said((key, value))

    assert found(config, key) == read
    assert found(said(), key) != read
    assert type(found(config, key)) is not int or KINDS[key] is int


def test_the_document_has_every_key_with_its_default() -> None:
    defaults = said()
    real = {
        key: "" if found(defaults, key) is None else json.dumps(found(defaults, key))
        for key in KINDS
    }

    assert dict(documented()) == real


# What is wrong.


@pytest.mark.parametrize("section", [*SECTIONS, "turns", "lanes", "websockets", "memory"])
def test_an_unknown_key_is_named_and_the_known_ones_are_listed(section: str) -> None:
    error = wrong((f"{section}.prot", 1))

    assert error.key == f"{section}.prot"
    for key in KINDS:
        if key.startswith(f"{section}."):
            assert key.partition(".")[2] in error.problem


@pytest.mark.parametrize("key", KINDS)
def test_a_value_of_the_wrong_kind_names_its_key(key: str) -> None:
    kind = KINDS[key]
    values: list[object] = [2 if kind is bool else True, {}, [5]]
    values += BAD_NUMBERS if kind in (int, float) else []
    values += [5.5] if kind is int else []
    values += [65536, 10**30] if key == "server.port" else []
    for value in values:
        assert wrong((key, value)).key == key


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"lanes.kept": 64}, "lanes.kept"),
        ({"lanes.limit": 8}, "lanes.limit"),
        ({"lanes.limit": 10, "lanes.kept": 10}, "lanes.limit, lanes.kept"),
        ({"lanes.limit": 4, "lanes.kept": 4}, "lanes.limit"),
        ({"turns.limit": 9, "memory.limit_bytes": 0, "lanes.limit": 70}, "memory.limit_bytes"),
        ({"turns.limit": 0, "memory.limit_bytes": 0}, "turns.limit, memory.limit_bytes"),
        ({"workflow.kept": 8}, "workflow.kept"),
        ({"workflow.turns": 1, "workflow.sends": 5}, "workflow.turns"),
    ],
)
def test_limits_that_contradict_each_other_are_named(
    keys: Mapping[str, object], named: str
) -> None:
    assert wrong(*keys.items()).key == named


def test_a_number_out_of_range_is_explained(snapshot: Snapshot) -> None:
    values = (
        ("server.port", 65536),
        ("server.drain_seconds", -1),
        ("upstream.silence_seconds", 0),
        ("routing.auto_switch_threshold", 101),
        ("upstream.url", "ftp://x"),
        ("lanes.kept", 64),
    )

    snapshot("errors", *map(wrong, values))


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example/v1",
        "http://127.0.0.1:8080",
        "http://[::1]:8080/v1/",
        "https://a-b.example:443/x/y",
    ],
)
def test_an_upstream_is_a_base_url(url: str) -> None:
    assert said(("upstream.url", url)).upstream.url == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.example/v1",
        "ftp://api.example",
        "http://",
        "https:///v1",
        "http://[::1",
        "http://a b",
        "http://a/v1?key=1",
        "http://a/v1#x",
        "http://a:port",
        "http://user:secret@a/v1",
        "http://a/v1\nx",
        "http://a/v1\n",
    ],
    ids=repr,
)
def test_anything_else_is_not_a_base_url(url: str) -> None:
    assert wrong(("upstream.url", url)).key == "upstream.url"


# The file.


def in_file(folder: Path, text: str, *, offline: bool = False) -> Config:
    path = folder / "turnlane.toml"
    path.write_text(text, "utf-8")
    return load(path, {}, {}, offline=offline)


@pytest.mark.parametrize(
    ("document", "key"),
    [
        ("[sever]\nport = 1\n", "sever"),
        ("sever = 1\n", "sever"),
        ("server = 1\n", "server"),
        ("[[lanes]]\nlimit = 3\n", "lanes"),
        ("[server]\nport = nan\n", "server.port"),
        ("[server]\nprot = 1\n", "server.prot"),
    ],
    ids=["section", "root-key", "no-table", "array", "nan", "key"],
)
def test_what_is_wrong_in_a_file_is_named(
    document: str, key: str, tmp_path: Path, snapshot: Snapshot
) -> None:
    with pytest.raises(ConfigError) as raised:
        in_file(tmp_path, document)

    assert raised.value.key == key
    snapshot("errors", raised.value)


@pytest.mark.parametrize("content", [b"[server\n", b"\xff\xfe", b"a = 1\na = 2\n", None])
def test_a_file_that_cannot_be_read_or_is_not_toml_is_named(
    content: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "turnlane.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="No such file" if content is None else "TOML") as raised:
        load(path, {}, {})

    assert raised.value.key == str(path)


# File, environment, flags.


def test_flags_outrank_the_environment_and_the_environment_the_file(tmp_path: Path) -> None:
    path = tmp_path / "turnlane.toml"
    path.write_text('[upstream]\nurl = "http://file"\nsends = 5\n')
    environment = {"TURNLANE_UPSTREAM": "http://environment"}
    flags: dict[str, dict[str, object]] = {"upstream": {"url": "http://flag"}}
    loaded = [
        load(path, {}, {}),
        load(path, {"TURNLANE_UPSTREAM": ""}, {}),
        load(path, environment, {}),
        load(path, environment, flags),
    ]

    assert [config.upstream for config in loaded] == [
        UpstreamSettings(url=f"http://{url}", sends=5)
        for url in ("file", "file", "environment", "flag")
    ]


def test_what_is_wrong_in_the_environment_is_named() -> None:
    with pytest.raises(ConfigError) as raised:
        load(None, {"TURNLANE_UPSTREAM": "nowhere"}, {})

    assert raised.value.key == "upstream.url"


@pytest.mark.parametrize(
    ("environment", "directory"),
    [
        ({"TURNLANE_HOME": "/data/lane", "XDG_DATA_HOME": "/xdg"}, Path("/data/lane")),
        ({"TURNLANE_HOME": "~/lane"}, Path.home() / "lane"),
        ({"TURNLANE_HOME": "", "XDG_DATA_HOME": "/xdg"}, Path("/xdg/turnlane")),
        ({"XDG_DATA_HOME": ""}, Path.home() / ".local/share/turnlane"),
        ({}, Path.home() / ".local/share/turnlane"),
    ],
)
def test_the_home_is_where_it_is_said_to_be(
    environment: Mapping[str, str], directory: Path
) -> None:
    assert home_of(environment) == directory
    assert load(None, environment, {}).home == directory


# Accounts.


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[accounts]\nx = 1", "accounts.x"),
        ("[accounts.X]", "accounts.X"),
        ("[accounts.x]", "accounts.x"),
        ('[accounts.x]\nkey = "sk-secret-1"', "accounts.x.key"),
        ('[accounts.x]\nkey = "file:k"\nurl = "ftp://x"', "accounts.x.url"),
        ('[accounts.x]\nauth_json = "a"\nproject = "p"', "accounts.x.project"),
        ('[accounts.x]\nkey = "file:k"\nmodels = []', "accounts.x.models"),
        ('[accounts.x]\nkey = "file:k"\nmodels = [""]', "accounts.x.models"),
        ('[accounts.x]\nkey = "file:k"\nmodels = ["[a"]', "accounts.x.models"),
        ('[accounts.x]\nkey = "env:NONE"', "accounts.x.key"),
        ("[routing]\nauto_switch_threshold = 0.8", "routing.auto_switch_threshold"),
        ('[routing]\nstrategy = "most"', "routing.strategy"),
        ('[lanes]\noverlap = "both"', "lanes.overlap"),
    ],
    ids=[
        *("no-table", "name", "no-credential", "secret", "url", "project", "no-model"),
        *("empty-model", "bracket", "unset", "fraction", "strategy", "overlap"),
    ],
)
def test_what_is_wrong_with_an_account_or_its_routing_is_named(
    text: str, key: str, tmp_path: Path, snapshot: Snapshot
) -> None:
    with pytest.raises(ConfigError) as raised:
        in_file(tmp_path, text)

    assert raised.value.key == key
    assert "sk-secret" not in str(raised.value)
    snapshot("errors", raised.value)


def test_paths_start_at_the_folder_of_their_file(tmp_path: Path) -> None:
    text = """
        [accounts.key]
        key = "file:keys/one"
        [accounts.login]
        auth_json = "auth.json"
        [accounts.other]
        auth_json = "/elsewhere/auth.json"
        """
    specs = in_file(tmp_path, text).accounts

    assert [spec.key or spec.auth_json for spec in specs.values()] == [
        f"file:{tmp_path}/keys/one",
        f"{tmp_path}/auth.json",
        "/elsewhere/auth.json",
    ]


def test_a_variable_that_is_not_set_matters_only_where_accounts_serve(tmp_path: Path) -> None:
    config = in_file(tmp_path, '[accounts.x]\nkey = "env:NONE"', offline=True)

    assert config.secrets == {"NONE": ""}


def test_an_inspection_refuses_what_could_not_serve_and_warns_of_the_rest(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    key = tmp_path / "key"
    text = """
        [accounts.key]
        key = "file:key"
        [accounts.login]
        auth_json = "auth.json"
        """
    config = in_file(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        inspect_accounts(config)
    key.write_text("sk-secret-one")
    key.chmod(0o644)

    assert raised.value.key == "accounts.key.key"
    snapshot("errors", *inspect_accounts(config), key=key)
