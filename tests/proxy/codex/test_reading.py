"""Where a configuration leads, and what in it would go another way."""

from __future__ import annotations

import pytest

from proxy.codex.reading import Reading, is_local, is_same_place, read_config
from proxy.codex.toml_edit import KEY
from tests.testkit.snapshots import Snapshot

URL = "http://127.0.0.1:10110/v1"
ROOT = f'{KEY} = "{URL}"\n'


def read(text: str, **profiles: str) -> Reading:
    return read_config(
        text.encode(), {name: content.encode() for name, content in profiles.items()}
    )


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("", None),
        (ROOT, URL),
        (f'[model_providers.x]\nbase_url = "{URL}"\n', None),
        (f'model_provider = "x"\n[model_providers.x]\nbase_url = "{URL}"\n', URL),
        (f'{ROOT}model_provider = "openai"\n', URL),
        (f'{ROOT}model_provider = "x"\n', None),
        (f'{ROOT}model_provider = "x"\nmodel_providers = 1\n', None),
    ],
)
def test_the_selected_provider_decides_where_turns_go(text: str, url: str | None) -> None:
    assert read(text).url == url


def test_no_file_leads_to_the_provider_itself() -> None:
    assert read_config(None, {}) == Reading()


@pytest.mark.parametrize("text", ["a = \n", "model_provider = 1\n", f"{KEY} = 1\n"])
def test_what_cannot_be_read_is_a_problem_and_leads_nowhere_known(text: str) -> None:
    reading = read(text)

    assert reading.problem is not None
    assert (reading.url, reading.bypasses) == (None, ())


def test_a_problem_is_explained(snapshot: Snapshot) -> None:
    snapshot("codex", read("model_provider = 1\n").problem, read(f"{KEY} = 1\n").problem)


def test_a_setting_that_bypasses_turnlane_is_named(snapshot: Snapshot) -> None:
    texts = (
        f'{ROOT}model_provider = "x"\n',
        f'{ROOT}model_provider = "x"\n[model_providers.x]\nbase_url = "http://e/v1"\n',
        f'{ROOT}[profiles.work]\nmodel_provider = "x"\n',
        f'{ROOT}[profiles.work]\n{KEY} = "http://e"\n',
    )
    bypasses = [read(text).bypasses for text in texts]

    assert [len(each) for each in bypasses] == [1] * 4
    snapshot("codex", *(bypass for (bypass,) in bypasses))


def test_a_profile_of_the_root_is_told_apart_from_what_leads_away() -> None:
    reading = read(f'{ROOT}profile = "work"\n')

    assert (reading.profile, reading.bypasses) == ("work", ())


@pytest.mark.parametrize(
    ("name", "base_url", "here", "leads"),
    [
        ("turnlane", URL, "http://127.0.0.1:10110", True),
        ("mine", URL, "http://localhost:10110", True),
        ("turnlane", URL, "http://127.0.0.1:10111", False),
        ("turnlane", URL, None, True),
        ("mine", URL, None, False),
        ("turnlane", "http://example.invalid/v1", None, False),
    ],
)
def test_a_provider_that_leads_here_is_no_way_round(
    name: str, base_url: str, here: str | None, leads: bool
) -> None:
    text = f'model_provider = "{name}"\n[model_providers.{name}]\nbase_url = "{base_url}"\n'
    reading = read_config(text.encode(), {}, here)

    assert (reading.bypasses == ()) is leads


def test_profiles_in_files_of_their_own_are_read(snapshot: Snapshot) -> None:
    reading = read(ROOT, b='model_provider = "x"', a=f'{KEY} = "http://e"', c="model = 'm'", d="[")

    assert len(reading.bypasses) == 3
    *bypasses, unreadable = reading.bypasses
    assert unreadable.startswith("d.config.toml ")
    snapshot("codex", *bypasses)


@pytest.mark.parametrize("text", [ROOT, f"{ROOT}[profiles]\nx = 1\n[model_providers.x]\n"])
def test_what_is_not_selected_is_no_bypass(text: str) -> None:
    assert read(text).bypasses == ()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (URL, URL, True),
        (URL, f"{URL}/", True),
        (URL, "http://localhost:10110/v1", True),
        (URL, "http://[::1]:10110/v1", False),
        ("http://0.0.0.0:10110/v1", "http://[::1]:10110/v1", False),
        (URL, "http://0.0.0.0:10110/v1", True),
        (URL, "http://[::]:10110/v1", True),
        ("http://[::1]:10110/v1", "http://LOCALHOST:10110/v1", True),
        ("http://[::1]:10110/v1", "http://[::1]:10110/v1/", True),
        (URL, "http://127.0.0.1:10111/v1", False),
        (URL, "https://127.0.0.1:10110/v1", False),
        (URL, "http://127.0.0.1:10110/v2", False),
        (URL, "http://example.invalid:10110/v1", False),
        ("http://example.invalid/v1", "http://EXAMPLE.invalid/v1", True),
        (URL, "http://127.0.0.1:none/v1", False),
        (URL, "http://[/v1", False),
        (URL, "v1", False),
    ],
)
def test_two_addresses_of_one_listener_are_the_same_place(one: str, other: str, same: bool) -> None:
    assert is_same_place(one, other) is same
    assert is_same_place(other, one) is same


def test_only_this_machine_is_local() -> None:
    assert is_local(URL)
    assert not is_local("http://example.invalid/v1")
    assert not is_local("http://[")
