"""Bindings and the shelf that they outlive the process on."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.accounts.bindings import BindingKey, Bindings, Foreign, Recent, ThreadName
from proxy.accounts.health import PersistedHealth
from proxy.accounts.persistence import SHELF_NAME, open_shelf
from proxy.accounts.route import Binding
from proxy.accounts.view import ANY, AccountId, Cooldown, Family, Window
from proxy.errors import ConfigError

A, B = AccountId("a"), AccountId("b")
GPT = Family("gpt-5.5")
BOUND = Binding(account=A, generation=1, used_at=10.0)


def key(name: str) -> BindingKey:
    return ThreadName(name), GPT


def test_the_binding_that_was_used_longest_ago_goes_first() -> None:
    recent = Recent[str, int](2)
    gone = [recent.set(name, 0) for name in ("one", "two", "one", "three")]

    assert gone == [None, None, None, "two"]
    assert len(recent) == 2


def test_what_has_to_go_is_written_down_as_gone() -> None:
    bindings = Bindings()
    for number in range(2049):
        bindings.keep(key(f"thread {number}"), BOUND)

    changed = dict(bindings.take_changed())

    assert len(bindings) == 2048
    assert changed[key("thread 0")] is None
    assert changed[key("thread 2048")] == BOUND
    assert bindings.take_changed() == []


def test_a_thread_is_served_where_its_binding_or_its_detour_says() -> None:
    away = replace(BOUND, detour=B)
    bindings = Bindings([(key("home"), BOUND), (key("away"), away)])

    assert bindings.served(ThreadName("home")) == A
    assert bindings.served(ThreadName("away")) == B
    assert bindings.served(None) is None


def test_foreign_items_are_those_of_one_account() -> None:
    bindings = Bindings()
    bindings.note_foreign(key("thread"), Foreign(account=B, last=b"mark"))

    assert bindings.foreign(key("thread"), B) == b"mark"
    assert bindings.foreign(key("thread"), A) is None
    assert bindings.foreign(None, B) is None


bindings_of = st.builds(
    Binding,
    account=st.sampled_from([A, B]),
    generation=st.integers(1, 5),
    used_at=st.floats(0, 1e10),
    scored_at=st.floats(0, 1e10),
    held_since=st.none() | st.floats(0, 1e10),
    detour=st.none() | st.just(B),
)


@given(st.dictionaries(st.text(max_size=8), bindings_of, max_size=5))
def test_a_restart_finds_what_was_written(
    tmp_path_factory: object, kept: dict[str, Binding]
) -> None:
    assert isinstance(tmp_path_factory, pytest.TempPathFactory)
    home = tmp_path_factory.mktemp("home")
    changes = [(key(name), binding) for name, binding in kept.items()]
    with closing(open_shelf(home)) as shelf:
        shelf.write(changes, [])

    with closing(open_shelf(home)) as shelf:
        assert dict(shelf.bindings()) == dict(changes)


def test_what_is_gone_is_gone_and_accounts_are_remembered(tmp_path: Path) -> None:
    lasting = PersistedHealth(
        windows=(Window(name="primary", used_percent=3, resets_at=5.0),),
        spent={ANY: Cooldown(since=1, until=2, probe_at=3)},
        fingerprint="print",
        generation=3,
    )
    with closing(open_shelf(tmp_path)) as shelf:
        shelf.write([(key("one"), BOUND), (key("two"), BOUND)], [(A, lasting)])
        shelf.write([(key("one"), None)], [])

    with closing(open_shelf(tmp_path)) as shelf:
        assert shelf.bindings() == [(key("two"), BOUND)]
        assert shelf.lasting() == {A: lasting}
    assert (tmp_path / SHELF_NAME).stat().st_mode & 0o777 == 0o600


def test_the_most_recently_used_come_last_however_many_there_are(tmp_path: Path) -> None:
    with closing(open_shelf(tmp_path)) as shelf:
        rows = [(key(str(number)), replace(BOUND, used_at=number)) for number in range(2050)]
        shelf.write(rows, [])
        found = shelf.bindings()

    assert len(found) == 2048
    assert [found[0][0], found[-1][0]] == [key("2"), key("2049")]


def test_what_cannot_be_read_of_an_account_is_forgotten(tmp_path: Path) -> None:
    open_shelf(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / SHELF_NAME)) as database:
        database.execute("INSERT INTO accounts VALUES ('a', '{\"windows\": 7}')")
        database.commit()

    with closing(open_shelf(tmp_path)) as shelf:
        assert shelf.lasting() == {}


@pytest.mark.parametrize("content", [b"no database" * 100, None])
def test_a_shelf_that_is_none_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / SHELF_NAME
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)

    with pytest.raises(ConfigError, match=SHELF_NAME):
        open_shelf(tmp_path)
