"""Where Codex ends up, and what is said and advised about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.codex.destination import Course, Destination, Sight, course, look_at
from proxy.codex.place import Environment
from proxy.codex.reading import Reading, read_config
from proxy.codex.toml_edit import KEY
from proxy.control.identity import Answered, Answerer
from proxy.keys import KEYS_NAME, KeyRing
from tests.proxy.codex.kit import OTHER_URL, URL, Homes
from tests.testkit.snapshots import Snapshot

HERE = URL.removesuffix("/v1")
FAR = "https://example.invalid/v1"
T, X, N = Answerer.TURNLANE, Answerer.OTHER, Answerer.NOBODY


def root(url: str) -> Reading:
    return read_config(f'{KEY} = "{url}"'.encode(), {})


def provider(name: str, url: str) -> Reading:
    text = f'model_provider = "{name}"\n[model_providers.{name}]\nbase_url = "{url}"\n'
    return read_config(text.encode(), {})


@pytest.mark.parametrize(
    ("sight", "way", "mend"),
    [
        (Sight(reading=root(URL), here=HERE), Destination.HERE, None),
        (Sight(reading=root(URL), here=HERE, keys=True), Destination.NO_KEY, "turnlane codex show"),
        (Sight(reading=provider("x", URL), here=HERE, keys=True), Destination.HERE, None),
        (Sight(reading=root(URL), held=True, answered=T), Destination.HERE, None),
        (
            Sight(reading=root(OTHER_URL), here=HERE, answered=N),
            Destination.NOBODY,
            "turnlane codex on, or turnlane codex off",
        ),
        (
            Sight(reading=root(OTHER_URL), here=HERE, answered=N, keys=True),
            Destination.NOBODY,
            "turnlane codex show, or turnlane codex off",
        ),
        (
            Sight(reading=root(OTHER_URL), answered=N),
            Destination.NOBODY,
            "turnlane serve --port 10111, or turnlane codex off",
        ),
        (
            Sight(reading=provider("turnlane", URL), answered=N),
            Destination.NOBODY,
            "turnlane serve --port 10110, or turnlane codex off",
        ),
        (Sight(reading=root(URL), held=True, answered=N), Destination.NOBODY, "turnlane codex off"),
        (
            Sight(reading=root(URL), answered=T),
            Destination.ANOTHER,
            "set TURNLANE_HOME to its home",
        ),
        (
            Sight(reading=root(OTHER_URL), here=HERE, answered=T),
            Destination.ANOTHER,
            "turnlane codex on",
        ),
        (
            Sight(reading=provider("x", OTHER_URL), answered=N),
            Destination.PROVIDER,
            "turnlane codex show",
        ),
        (
            Sight(reading=provider("x", OTHER_URL), answered=X),
            Destination.PROVIDER,
            "turnlane codex show",
        ),
        (Sight(reading=provider("x", FAR), here=HERE), Destination.PROVIDER, "turnlane codex show"),
        (
            Sight(reading=root(OTHER_URL), here=HERE, answered=X),
            Destination.ELSEWHERE,
            "turnlane codex on",
        ),
        (
            Sight(reading=root(FAR), here=HERE, keys=True),
            Destination.ELSEWHERE,
            "turnlane codex show",
        ),
        (Sight(reading=Reading()), Destination.ELSEWHERE, "turnlane serve --codex"),
        (Sight(reading=Reading(), keys=True), Destination.ELSEWHERE, "turnlane codex show"),
        (
            Sight(reading=root("http://127.0.0.1/v1"), answered=N),
            Destination.NOBODY,
            "turnlane serve --port 80, or turnlane codex off",
        ),
        (Sight(reading=Reading(problem="broken")), Destination.UNREADABLE, None),
    ],
)
def test_each_destination_has_a_remedy(sight: Sight, way: Destination, mend: str | None) -> None:
    found = course(sight)

    assert (found.way, found.mend) == (way, mend)
    assert found.said != ""


def test_each_destination_has_words(snapshot: Snapshot) -> None:
    sights = (
        Sight(reading=root(URL), here=HERE),
        Sight(reading=root(URL), here=HERE, keys=True),
        Sight(reading=root(OTHER_URL), answered=N),
        Sight(reading=root(URL), answered=T),
        Sight(reading=provider("x", FAR)),
        Sight(reading=read_config(b'model_provider = "x"', {})),
        Sight(reading=root(OTHER_URL), here=HERE, answered=X),
        Sight(reading=root(FAR)),
        Sight(reading=Reading()),
        Sight(reading=Reading(problem="<why>")),
    )
    found = [course(sight) for sight in sights]

    assert {each.way for each in found} == set(Destination)
    snapshot("codex", *(f"{each.way}: Codex {each.said}" for each in found))


def look(homes: Homes, answered: Answerer = N, *, hung: bool = False) -> tuple[Course, list[str]]:
    asked: list[str] = []

    def asks(url: str) -> Answered:
        asked.append(url)
        return Answered(by=answered)

    environment = {"CODEX_HOME": str(homes.codex)}
    place = Environment(home=homes.home, environment=environment, asks=asks)
    seen = look_at(place, here=None, held=hung, hung=hung)
    return course(seen), asked


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    homes = Homes(tmp_path)
    homes.codex.mkdir()
    return homes


def test_what_turnlane_wrote_counts_even_if_another_program_answers_now(
    homes: Homes, snapshot: Snapshot
) -> None:
    homes.on()
    found, asked = look(homes, X)

    assert (found.way, found.mend, asked) == (Destination.NOBODY, "turnlane codex off", [URL])
    snapshot("codex", found.said)


def test_a_turnlane_that_did_not_answer_is_not_asked_again(homes: Homes) -> None:
    homes.on()
    found, asked = look(homes, T, hung=True)

    assert (found.way, asked) == (Destination.NOBODY, [])


def test_only_an_address_of_this_machine_is_asked(homes: Homes) -> None:
    homes.config.write_text(f'{KEY} = "{FAR}"\n')

    assert look(homes)[1] == []


def test_keys_that_cannot_be_read_hide_nothing_else(homes: Homes) -> None:
    KeyRing(homes.home).add("desk")
    (homes.home / KEYS_NAME).write_bytes(b"{")

    assert look(homes)[0].way is Destination.ELSEWHERE
