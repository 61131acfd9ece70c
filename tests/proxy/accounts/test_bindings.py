"""Bindings: bounded, written down when they change, and what belongs to one account."""

from dataclasses import replace

from proxy.accounts.bindings import BindingKey, Bindings, Foreign, Recent, ThreadName
from proxy.accounts.route import Binding
from proxy.accounts.view import AccountId, Family

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
