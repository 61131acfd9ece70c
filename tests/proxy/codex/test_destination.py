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


D = Destination
ON, OFF, SHOW = "turnlane codex on", "turnlane codex off", "turnlane codex show"


@pytest.mark.parametrize(
    ("sight", "way", "mend"),
    [
        (Sight(reading=root(URL), here=HERE), D.HERE, None),
        (Sight(reading=root(URL), here=HERE, keys=True), D.NO_KEY, SHOW),
        (Sight(reading=provider("x", URL), here=HERE, keys=True), D.HERE, None),
        (Sight(reading=root(URL), held=True, answered=T), D.HERE, None),
        (Sight(reading=root(OTHER_URL), here=HERE, answered=N), D.NOBODY, f"{ON}, or {OFF}"),
        (
            Sight(reading=root(OTHER_URL), here=HERE, answered=N, keys=True),
            D.NOBODY,
            f"{SHOW}, or {OFF}",
        ),
        *(
            (Sight(reading=reading, answered=N), D.NOBODY, f"turnlane serve --port {n}, or {OFF}")
            for reading, n in (
                (root(OTHER_URL), 10111),
                (provider("turnlane", URL), 10110),
                (root("http://127.0.0.1/v1"), 80),
            )
        ),
        (Sight(reading=root(URL), held=True, answered=N), D.NOBODY, OFF),
        (Sight(reading=root(URL), answered=T), D.ANOTHER, "set TURNLANE_HOME to its home"),
        (Sight(reading=root(OTHER_URL), here=HERE, answered=T), D.ANOTHER, ON),
        (Sight(reading=provider("x", OTHER_URL), answered=N), D.PROVIDER, SHOW),
        (Sight(reading=provider("x", OTHER_URL), answered=X), D.PROVIDER, SHOW),
        (Sight(reading=provider("x", FAR), here=HERE), D.PROVIDER, SHOW),
        (Sight(reading=root(OTHER_URL), here=HERE, answered=X), D.ELSEWHERE, ON),
        (Sight(reading=root(FAR), here=HERE, keys=True), D.ELSEWHERE, SHOW),
        (Sight(reading=Reading()), D.ELSEWHERE, "turnlane serve --codex"),
        (Sight(reading=Reading(), keys=True), D.ELSEWHERE, SHOW),
        (Sight(reading=Reading(problem="broken")), D.UNREADABLE, None),
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


def test_what_turnlane_wrote_counts_whatever_answers_and_is_asked_once(
    homes: Homes, snapshot: Snapshot
) -> None:
    homes.on()
    found, asked = look(homes, X)
    hung, again = look(homes, T, hung=True)

    assert (found.way, found.mend, asked) == (D.NOBODY, OFF, [URL])
    assert (hung.way, again) == (D.NOBODY, [])
    snapshot("codex", found.said)


def test_only_an_address_of_this_machine_is_asked(homes: Homes) -> None:
    homes.config.write_text(f'{KEY} = "{FAR}"\n')

    assert look(homes)[1] == []


def test_keys_that_cannot_be_read_hide_nothing_else(homes: Homes) -> None:
    KeyRing(homes.home).add("desk")
    (homes.home / KEYS_NAME).write_bytes(b"{")

    assert look(homes)[0].way is Destination.ELSEWHERE
