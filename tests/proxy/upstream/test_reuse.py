"""Which free connection is used next, and which are closed."""

from proxy.upstream.connection import IDLE_SECONDS, ConnectionPool
from proxy.upstream.url import Origin
from tests.testkit.links import link

HERE = Origin(False, "here", 80)
THERE = Origin(False, "there", 80)


def test_the_last_used_is_used_next() -> None:
    links = ConnectionPool()
    first, second = link(), link()
    links.put(HERE, first, 1.0)
    links.put(HERE, second, 2.0)

    assert links.take(HERE, 3.0) is second
    assert links.take(HERE, 3.0) is first
    assert links.take(HERE, 3.0) is None


def test_a_connection_leads_to_one_origin() -> None:
    links = ConnectionPool()
    links.put(HERE, link(), 1.0)

    assert links.take(THERE, 1.0) is None
    assert links.take(Origin(True, "here", 80), 1.0) is None


def test_one_that_has_something_to_say_is_not_used_again() -> None:
    links = ConnectionPool()
    alive, dead = link(), link()
    dead.quiet = False
    links.put(HERE, alive, 1.0)
    links.put(HERE, dead, 2.0)

    assert links.take(HERE, 3.0) is alive
    assert (alive.closed, dead.closed) == (False, True)


def test_what_stands_for_long_is_closed_whatever_is_asked_for() -> None:
    links = ConnectionPool()
    old, young = link(), link()
    links.put(HERE, old, 0.0)
    links.put(HERE, young, 1.0)

    assert links.take(THERE, IDLE_SECONDS) is None
    assert (old.closed, young.closed) == (True, False)
    assert links.take(HERE, IDLE_SECONDS) is young


def test_closing_closes_every_one() -> None:
    links = ConnectionPool()
    all_links = [link(), link()]
    for origin, each in zip((HERE, THERE), all_links, strict=True):
        links.put(origin, each, 0.0)
    links.close()

    assert all(each.closed for each in all_links)
    assert links.take(HERE, 0.0) is None
