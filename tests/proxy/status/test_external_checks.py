"""The doctor on what is around turnlane: neighbours, Codex, accounts, upstreams, the clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.accounts.registry import AccountRegistry
from proxy.accounts.spec import AccountSpec
from proxy.accounts.view import AccountId, Standing
from proxy.codex.adoption import Adoption, CodexProcess, State
from proxy.codex.destination import Course, Destination
from proxy.codex.saved import NOTE_NAME
from proxy.config.load import load
from proxy.errors import ConfigError
from proxy.status.external_checks import CLOCK_SECONDS, outside
from proxy.status.finding import CheckContext, Level, Reached
from proxy.status.processes import Neighbour
from proxy.upstream.url import CHATGPT_URL, OPENAI_URL
from tests.proxy.status.kit import RUNNING, bad, patient, seen, told
from tests.testkit.snapshots import Snapshot

OLD = CodexProcess(pid=41, kind="cli", started=1.0)
BROKEN = ConfigError("server.port", "must be a number")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "codex").mkdir()
    return tmp_path / "home"


def routed(state: State, why: str = "because", *, serving: bool = True, **more: object) -> object:
    found = Adoption(state=state, why=why, **more)  # type: ignore[arg-type]
    return seen(RUNNING if serving else None, routing=found)


def test_a_healthy_turnlane_has_no_findings(home: Path) -> None:
    assert [x for x in outside(patient(home)) if x.level is not Level.GOOD] == []


# Neighbours.


def test_other_turnlanes_are_named_and_a_draining_one_of_this_home_is_not(
    home: Path, snapshot: Snapshot
) -> None:
    ours = {**RUNNING, "draining": [{"pid": 8, "since": 1.0}]}
    found = [Neighbour(pid=pid) for pid in (7, 8, 9, 10)]
    asked = patient(home, seen=seen(ours), neighbours=lambda: found)

    ((level, _, mend),) = bad(outside(asked), "others")
    assert (level, mend) == (Level.WARNING, "ps -p 9,10")
    snapshot("doctor", *told(outside(asked), "others"))


def test_a_hanging_holder_of_this_home_is_not_another_turnlane(home: Path) -> None:
    hung = seen(None, held_by="9")
    asked = patient(home, seen=hung, neighbours=lambda: [Neighbour(pid=9)])

    assert bad(outside(asked), "others") == []


def test_an_unreadable_list_of_processes_is_not_an_empty_one(
    home: Path, snapshot: Snapshot
) -> None:
    findings = list(outside(patient(home, neighbours=lambda: None)))

    assert [level for level, _, _ in bad(iter(findings), "others")] == [Level.WARNING]
    snapshot("doctor", *told(findings, "others"))


# Codex.


@pytest.mark.parametrize(
    ("content", "level", "mend", "said"),
    [
        (None, Level.WARNING, "CODEX_HOME", "codex"),
        ("no toml", Level.WRONG, "$EDITOR", "config.toml"),
        ('[profiles.x]\nmodel_provider = "y"\n', Level.WARNING, "codex show", "[profiles.x]"),
        ('profile = "work"\n', Level.WARNING, "config.toml", "work"),
        ('model_provider = "x"\n', Level.WARNING, "codex show", 'model_provider = "x"'),
    ],
    ids=["no-home", "no-toml", "bypass", "profile", "provider"],
)
def test_a_configuration_that_leads_away_or_cannot_be_used_is_named_once(
    content: str | None, level: Level, mend: str, said: str, home: Path
) -> None:
    codex = home.with_name("codex")
    if content is None:
        codex.rmdir()
    else:
        (codex / "config.toml").write_text(content)
    way = Destination.PROVIDER if said.startswith("model_provider") else Destination.HERE
    overview = seen(course=Course(way=way, said="<where>"))

    ((found, text, how),) = bad(outside(patient(home, seen=overview)), "Codex")
    assert found is level
    assert said in text
    assert mend in (how or "")


def test_a_missing_home_and_a_profile_are_explained(home: Path, snapshot: Snapshot) -> None:
    codex = home.with_name("codex")
    (codex / "config.toml").write_text('profile = "work"\n')
    profile = list(outside(patient(home)))
    (codex / "config.toml").unlink()
    codex.rmdir()

    missing = outside(patient(home))
    snapshot("doctor", *told(profile, "Codex"), *told(missing, "Codex"), codex=codex)


@pytest.mark.parametrize(
    ("overview", "level", "mend"),
    [
        (routed(State.UNKNOWN), Level.WARNING, "turnlane codex show"),
        (
            routed(State.PENDING, stale=(OLD,)),
            Level.WARNING,
            "restart Codex",
        ),
        (routed(State.SEEN, stale=(OLD,)), Level.WARNING, "restart Codex"),
        *(
            (routed(state, serving=False), Level.WRONG, "turnlane serve, or turnlane codex off")
            for state in (State.SEEN, State.ADOPTED, State.PENDING)
        ),
    ],
)
def test_each_state_of_codex_names_its_remedy(
    overview: object, level: Level, mend: str, home: Path
) -> None:
    ((found, _, how),) = bad(outside(patient(home, seen=overview)), "Codex")

    assert (found, how) == (level, mend)


def test_codex_that_is_stale_or_points_at_a_stopped_turnlane_is_explained(
    home: Path, snapshot: Snapshot
) -> None:
    stale, stopped = routed(State.PENDING, stale=(OLD,)), routed(State.SEEN, serving=False)

    snapshot(
        "doctor",
        *told(outside(patient(home, seen=stale)), "Codex"),
        *told(outside(patient(home, seen=stopped)), "Codex"),
    )


@pytest.mark.parametrize(
    ("way", "level"),
    [
        (Destination.NO_KEY, Level.WRONG),
        (Destination.NOBODY, Level.WRONG),
        (Destination.ANOTHER, Level.WARNING),
        (Destination.ELSEWHERE, Level.WARNING),
    ],
)
@pytest.mark.parametrize("serving", [True, False])
def test_codex_that_does_not_end_up_here_is_named_whatever_it_has_read(
    way: Destination, level: Level, serving: bool, home: Path
) -> None:
    found = Course(way=way, said="<where>", mend="<command>")
    overview = seen(RUNNING if serving else None, course=found)

    ((seen_level, said, mend),) = bad(outside(patient(home, seen=overview)), "Codex")
    assert (seen_level, mend) == (level, "<command>")
    assert "<where>" in said


def test_an_unusable_note_is_wrong_and_the_line_and_the_file_are_named(
    home: Path, snapshot: Snapshot
) -> None:
    config = home.with_name("codex") / "config.toml"
    config.write_text('\nopenai_base_url = "http://127.0.0.1:10110/v1"\n')
    (home / NOTE_NAME).write_text("{")

    ((level, _, mend),) = bad(outside(patient(home)), "Codex")
    assert level is Level.WRONG
    assert f"line 2 of {config}" in (mend or "")
    assert str(home / NOTE_NAME) in (mend or "")
    snapshot("doctor", *told(outside(patient(home)), "Codex"), config=config, home=home)


@pytest.mark.parametrize("state", [State.SEEN, State.ADOPTED])
def test_codex_that_goes_through_turnlane_is_good(state: State, home: Path) -> None:
    assert bad(outside(patient(home, seen=routed(state))), "Codex") == []


# Accounts.


@pytest.mark.parametrize(
    ("standing", "level", "mend"),
    [
        (Standing.READY, Level.GOOD, None),
        (Standing.TROUBLED, Level.WARNING, "turnlane accounts test work"),
        (Standing.SPENT, Level.WARNING, None),
        (Standing.INVALID, Level.WRONG, "turnlane accounts test work"),
        (Standing.PLAN, Level.WARNING, None),
        (Standing.PAUSED, Level.WARNING, "turnlane accounts resume work"),
    ],
)
def test_an_account_that_does_not_serve_is_named(
    standing: Standing, level: Level, mend: str | None, home: Path, snapshot: Snapshot
) -> None:
    running = {**RUNNING, "accounts": [{"id": "work", "standing": standing.value}]}
    findings = list(outside(patient(home, seen=seen(running))))

    (found,) = (x for x in findings if x.about == "account work")
    assert (found.level, found.mend) == (level, mend)
    snapshot("doctor", *told([found]))


# Upstreams and the clock.


def urls(asked: CheckContext) -> list[str]:
    said = (x.said for x in outside(asked) if x.about == "upstream")
    return [text.partition(" ")[0] for text in said]


def test_an_upstream_that_is_not_reached_is_wrong(home: Path, snapshot: Snapshot) -> None:
    asked = patient(
        home, seen=seen(upstream="http://up.invalid"), reach=lambda _url: Reached(problem="<why>")
    )

    ((level, said, _),) = bad(outside(asked), "upstream")
    assert level is Level.WRONG
    assert "http://up.invalid" in said
    snapshot("doctor", *told(outside(asked), "upstream"))


@pytest.mark.parametrize("off", [61.0, -3600.0], ids=["ahead", "behind"])
def test_a_clock_that_is_wrong_either_way_is_wrong(
    off: float, home: Path, snapshot: Snapshot
) -> None:
    asked = patient(
        home, seen=seen(upstream="http://up"), reach=lambda _url: Reached(clock_off_seconds=off)
    )

    ((level, _, mend),) = bad(outside(asked), "clock")
    assert (level, mend) == (Level.WRONG, "timedatectl set-ntp true")
    snapshot("doctor", *told(outside(asked), "clock"))


@pytest.mark.parametrize("off", [CLOCK_SECONDS, -CLOCK_SECONDS, None])
def test_a_minute_or_an_unknown_time_is_not_a_fault(off: float | None, home: Path) -> None:
    asked = patient(home, reach=lambda _url: Reached(clock_off_seconds=off))

    assert bad(outside(asked), "clock") == []
    assert any(x.about == "clock" for x in outside(asked)) is (off is not None)


def test_without_a_setting_both_providers_are_tried(home: Path) -> None:
    assert urls(patient(home)) == [OPENAI_URL, CHATGPT_URL]


def test_the_upstream_of_the_process_outranks_that_of_this_command(home: Path) -> None:
    config = load(None, {"TURNLANE_HOME": str(home), "TURNLANE_UPSTREAM": "http://mine"}, {})

    assert urls(patient(home, config=config, seen=seen(upstream="http://its"))) == ["http://its"]
    assert urls(patient(home, config=config, seen=seen(None))) == ["http://mine"]


def test_every_accounts_own_place_is_tried_once(home: Path) -> None:
    registry = AccountRegistry(home)
    registry.put(AccountId("a"), AccountSpec(key="env:A", url="http://a"))
    registry.put(AccountId("b"), AccountSpec(key="env:B", url="http://a"))
    registry.put(AccountId("c"), AccountSpec(key="env:C"))
    registry.put(AccountId("d"), AccountSpec(auth_json="/x/auth.json"))

    assert urls(patient(home)) == ["http://a", OPENAI_URL, CHATGPT_URL]


def test_without_a_configuration_nobody_is_asked(home: Path) -> None:
    assert urls(patient(home, config=BROKEN)) == []
