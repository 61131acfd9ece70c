"""Accounts are added, replaced, paused and removed, in the files and in the pool alike."""

import stat
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proxy.accounts.account import Account
from proxy.accounts.bindings import ThreadName
from proxy.accounts.claim import AccountRequest, Claim
from proxy.accounts.health import PersistedHealth
from proxy.accounts.opening import ManagedAccounts
from proxy.accounts.persistence import remember, statements
from proxy.accounts.pool import MOST_ACCOUNTS, AccountPool
from proxy.accounts.registry import REGISTRY_NAME, SECRETS_NAME, AccountRegistry
from proxy.accounts.route import Move, MoveReason, Route, RoutingSettings
from proxy.accounts.spec import AccountSpec
from proxy.accounts.view import AccountId, Standing
from proxy.control.accounts import about_accounts
from proxy.database import open_database
from proxy.errors import ConfigError
from proxy.ingress.identity import Identity
from proxy.keys import KeyRing
from tests.proxy.control.wire import done
from tests.testkit.accounts import access, account, document, identity, write
from tests.testkit.home import remembered
from tests.testkit.runtime import NO_KEYS, WALL, opener
from tests.testkit.snapshots import Snapshot

KEY = "sk-secret-one"
OTHER = "sk-secret-other"
WORK = AccountId("work")


def managed(
    home: Path, *accounts: Account, configured: Collection[AccountId] = ()
) -> ManagedAccounts:
    return ManagedAccounts(
        pool=AccountPool(accounts, RoutingSettings(), lambda: WALL),
        registry=AccountRegistry(home),
        opener=opener(),
        configured=configured,
    )


def ask(those: ManagedAccounts, command: str, **more: Any) -> dict[str, Any]:
    """As it is answered over the control socket."""
    answer = done(
        partial(about_accounts, those, NO_KEYS), {"command": f"accounts.{command}", **more}
    )
    assert "secret-" not in repr(answer)
    return answer


def add(
    those: ManagedAccounts, secret: str = KEY, name: str = "work", **more: Any
) -> dict[str, Any]:
    return ask(those, "add", name=name, secret=secret, **more)


def token(those: ManagedAccounts, name: str = "work") -> str:
    """What the account puts into a request."""
    found = those.pool.get(AccountId(name))
    assert found is not None
    headers = trio.run(found.credential.headers, WALL)
    assert isinstance(headers, list)
    return dict(headers)[b"authorization"].decode()


def generation(those: ManagedAccounts) -> int:
    found = those.pool.get(WORK)
    assert found is not None
    return found.health.generation


def secrets(home: Path) -> list[str]:
    return sorted(x.name for x in (home / SECRETS_NAME).iterdir() if not x.name.endswith(".lock"))


@pytest.fixture
def login(tmp_path: Path) -> Path:
    path = tmp_path / "auth.json"
    write(path, document(access(1), "rt-secret-1"))
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


# Adding.


def test_a_key_serves_at_once_and_after_a_restart(home: Path) -> None:
    home.mkdir()
    those = managed(home)
    added = add(those, models=["gpt-5*"], url="https://api.example/v1", project="p")

    assert (added["account"]["id"], added["replaced"], added["moved"]) == ("work", False, False)
    assert token(those) == f"Bearer {KEY}"
    spec = AccountRegistry(home).all()[WORK]
    assert (
        opener().open(WORK, spec).credential.fingerprint
        == those.pool.all()[0].credential.fingerprint
    )
    assert (spec.models, spec.url, spec.project) == (("gpt-5*",), "https://api.example/v1", "p")


def test_a_key_stands_in_one_file_that_is_its_owners_alone(home: Path) -> None:
    home.mkdir()
    add(managed(home))

    assert KEY not in (home / REGISTRY_NAME).read_text()
    for file in (home / REGISTRY_NAME, home / SECRETS_NAME / "work.key"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((home / SECRETS_NAME).stat().st_mode) == 0o700


def test_another_credential_of_the_same_name_ends_what_was_bound_to_it(home: Path) -> None:
    home.mkdir()
    those = managed(home)
    add(those)
    same, other = add(those), add(those, OTHER)

    assert (same["replaced"], same["moved"]) == (True, False)
    assert (other["replaced"], other["moved"]) == (True, True)
    assert (token(those), generation(those)) == (f"Bearer {OTHER}", 2)


@pytest.mark.parametrize("secret", [KEY, OTHER])
def test_a_name_that_was_removed_and_comes_back_has_nothing_bound_to_it(
    secret: str, home: Path, autojump_clock: MockClock
) -> None:
    home.mkdir()
    those = managed(home)
    add(those)
    bound = ThreadName("t")
    with those.pool.claim(AccountRequest(thread=bound)):
        pass
    ask(those, "remove", name="work")
    add(those, secret)
    again = those.pool.preview(AccountRequest(thread=bound))

    assert generation(those) == 1
    assert isinstance(again, Route)
    assert (again.move, again.reason) == (Move.REBOUND, MoveReason.REPLACED)


def test_what_was_learnt_of_an_account_goes_with_it(home: Path) -> None:
    home.mkdir()
    those = managed(home)
    those.opener.known[WORK] = PersistedHealth(plan="pro", generation=7, fingerprint="another")
    add(those)
    before = generation(those)
    ask(those, "remove", name="work")
    with open_database(home) as database:
        remember(home, database)
        database.execute(statements([], [(WORK, PersistedHealth(plan="pro"))]))
    kept = remembered(home, those.pool.store).accounts
    again = add(those)

    assert (before, kept) == (8, {})
    assert (generation(those), again["account"]["plan"]) == (1, None)


def test_a_secret_that_no_account_names_is_removed_by_its_name(home: Path) -> None:
    (home / SECRETS_NAME).mkdir(parents=True)
    (home / SECRETS_NAME / "work.key").write_text(KEY)
    those = managed(home)
    removed, again = ask(those, "remove", name="work"), ask(those, "remove", name="work")

    assert removed["removed"] == "work"
    assert set(again) == {"error"}
    assert secrets(home) == []


def test_settings_that_are_not_given_again_are_kept(home: Path) -> None:
    home.mkdir()
    those = managed(home)
    add(those, models=["gpt-5*"], url="https://api.example/v1", project="p", organization="o")
    again = add(those, OTHER, models=["o4"])
    spec = AccountRegistry(home).all()[WORK]

    assert (spec.models, spec.url, spec.project, spec.organization) == (
        ("o4",),
        "https://api.example/v1",
        "p",
        "o",
    )
    assert again["kept"] == {"url": "https://api.example/v1", "project": "p", "organization": "o"}
    assert (again["account"]["url"], again["account"]["models"]) == (spec.url, ["o4"])


def test_nothing_of_a_key_stays_for_a_login(login: Path, home: Path) -> None:
    home.mkdir()
    those = managed(home)
    add(those, url="https://api.example/v1", project="p")
    first = ask(those, "import", name="work", path=str(login), models=["gpt-5*"])
    again = ask(those, "import", name="work", path=str(login))

    assert (first["kept"], again["kept"]) == ({}, {"models": ["gpt-5*"]})
    assert AccountRegistry(home).all()[WORK] == AccountSpec(
        auth_json=str(login), models=("gpt-5*",)
    )


def test_a_replaced_account_stays_paused_and_one_that_comes_back_does_not(home: Path) -> None:
    home.mkdir()
    those = managed(home)
    add(those)
    ask(those, "pause", name="work")
    replaced = add(those)
    ask(those, "remove", name="work")
    again = add(those)

    assert replaced["account"]["standing"] == Standing.PAUSED
    assert again["account"]["standing"] == Standing.READY


def test_two_names_of_one_credential_are_one_account(home: Path) -> None:
    home.mkdir()
    those = managed(home)
    add(those)

    assert add(those, name="again")["same_as"] == ["work"]
    assert add(those, OTHER, name="third")["same_as"] == []
    assert [each["same_as"] for each in ask(those, "list")["accounts"]] == [["again"], ["work"], []]


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "Work"},
        {"name": "../x"},
        {"url": "ftp://x"},
        {"secret": "sk-secret-é"},
        {"secret": "sk-secret two"},
        {"secret": 5},
        {"organization": "a b"},
        {"more": 1},
    ],
    ids=["name", "path", "url", "letter", "space", "type", "organization", "field"],
)
def test_an_invalid_account_is_refused_and_leaves_the_credential_as_it_was(
    wrong: dict[str, Any], home: Path, snapshot: Snapshot
) -> None:
    home.mkdir()
    those = managed(home)
    add(those)
    refused = ask(those, "add", **{"name": "work", "secret": OTHER, **wrong})

    snapshot("errors", refused["error"])
    assert token(those) == f"Bearer {KEY}"
    assert (home / SECRETS_NAME / "work.key").read_text() == KEY
    assert set(AccountRegistry(home).all()) == {"work"}


def test_the_number_of_accounts_is_bounded(home: Path) -> None:
    home.mkdir()
    those = managed(home, *(account(f"a{x}") for x in range(MOST_ACCOUNTS)))

    assert "64 accounts" in add(those)["error"]
    assert not (home / SECRETS_NAME).exists()


def test_a_home_that_cannot_be_written_adds_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    those = managed(tmp_path / "other")
    (tmp_path / "other").symlink_to(tmp_path / "home")

    assert set(add(those)) == {"error"}
    assert len(those.pool) == 0


# Logins.


def test_an_imported_login_is_used_where_it_is(login: Path, home: Path) -> None:
    home.mkdir()
    those = managed(home)
    imported = ask(those, "import", name="work", path=str(login))

    assert imported["account"]["kind"] == "chatgpt"
    assert token(those) == f"Bearer {access(1)}"
    assert AccountRegistry(home).all()[WORK].auth_json == str(login)
    assert not (home / SECRETS_NAME).exists()
    assert ask(those, "remove", name="work")["removed"] == "work"
    assert login.exists()


def test_a_copied_login_is_our_own_and_goes_with_its_account(login: Path, home: Path) -> None:
    home.mkdir()
    those = managed(home)
    ask(those, "import", name="work", path=str(login), copy=True)
    own = home / SECRETS_NAME / "work.json"

    assert own.read_bytes() == login.read_bytes()
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    ask(those, "remove", name="work")
    assert secrets(home) == []
    assert login.exists()


def test_a_secret_that_its_account_no_longer_needs_is_deleted(login: Path, home: Path) -> None:
    home.mkdir()
    those = managed(home)
    add(those)
    ask(those, "import", name="work", path=str(login), copy=True)
    copied = secrets(home)
    ask(those, "import", name="work", path=str(login))

    assert copied == ["work.json"]
    assert secrets(home) == []


def test_another_login_in_place_of_the_first_moves_the_generation(login: Path, home: Path) -> None:
    home.mkdir()
    those = managed(home)
    ask(those, "import", name="work", path=str(login))
    refreshed = login.with_name("refreshed.json")
    write(refreshed, document(access(2), "rt-secret-2"))
    other = login.with_name("other.json")
    write(other, document(access(2), id_token=identity(user="user-2")))

    assert ask(those, "import", name="work", path=str(refreshed))["moved"] is False
    assert ask(those, "import", name="work", path=str(other))["moved"] is True


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"OPENAI_API_KEY":"sk-secret-1"}'])
@pytest.mark.parametrize("copy", [False, True])
def test_a_file_without_a_login_is_not_imported(
    content: bytes | None, copy: bool, home: Path
) -> None:
    home.mkdir()
    those = managed(home)
    path = home / "auth.json"
    if content is not None:
        path.write_bytes(content)

    refused = ask(those, "import", name="work", path=str(path), copy=copy)
    assert str(path) in refused["error"]
    assert AccountRegistry(home).all() == {}


def test_a_login_that_goes_with_another_account_is_not_shared(login: Path, home: Path) -> None:
    home.mkdir()
    those = managed(home)
    ask(those, "import", name="work", path=str(login), copy=True)
    own = str(home / SECRETS_NAME / "work.json")
    shared = ask(those, "import", name="other", path=own)
    copied = ask(those, "import", name="other", path=own, copy=True)

    assert "--copy" in shared["error"]
    assert copied["account"]["id"] == "other"
    ask(those, "remove", name="work")
    assert secrets(home) == ["other.json"]


def test_a_home_that_is_moved_takes_its_secrets_along(login: Path, home: Path) -> None:
    home.mkdir()
    those = managed(home)
    add(those)
    ask(those, "import", name="own", path=str(login), copy=True)
    ask(those, "import", name="shared", path=str(login))
    elsewhere = home.rename(home.with_name("elsewhere"))
    specs = AccountRegistry(elsewhere).all()

    assert specs[WORK].key == f"file:{elsewhere / SECRETS_NAME / 'work.key'}"
    assert specs[AccountId("own")].auth_json == str(elsewhere / SECRETS_NAME / "own.json")
    assert specs[AccountId("shared")].auth_json == str(login)
    opened = opener().open(WORK, specs[WORK])
    assert opened.credential.fingerprint == those.pool.all()[0].credential.fingerprint


# Listing, pausing, removing.


def test_a_list_has_every_figure(home: Path) -> None:
    those = managed(home, account("work", 43), account("spent", 100))
    one, other = ask(those, "list")["accounts"]

    assert (one["id"], one["standing"], one["score"], one["bindings"]) == ("work", "ready", 43, 0)
    assert one["windows"][0]["used_percent"] == 43
    assert (other["standing"], other["resets_at"]) == ("spent", WALL + 5 * 3600)


def test_an_account_is_paused_and_resumed(home: Path) -> None:
    those = managed(home, account("work"))

    assert ask(those, "pause", name="work")["account"]["standing"] == Standing.PAUSED
    assert ask(those, "resume", name="work")["account"]["standing"] == Standing.READY


def test_the_answer_counts_the_accounts_that_can_still_serve(home: Path) -> None:
    those = managed(home, account("work"), account("spent", 100), account("other"))

    assert [ask(those, "pause", name=x)["usable"] for x in ("work", "other", "spent")] == [2, 1, 0]
    assert ask(those, "resume", name="spent")["usable"] == 1


@pytest.mark.parametrize("command", ["pause", "resume", "remove"])
def test_an_unknown_account_is_named(command: str, home: Path) -> None:
    assert "work" in ask(managed(home), command, name="work")["error"]


def test_the_known_accounts_are_listed_for_an_unknown_one(home: Path, snapshot: Snapshot) -> None:
    none = ask(managed(home), "pause", name="other")
    one = ask(managed(home, account("work")), "pause", name="other")

    snapshot("accounts", none["error"], one["error"])


def test_an_account_of_the_configuration_is_changed_there(home: Path, snapshot: Snapshot) -> None:
    those = managed(home, account("work"), configured={WORK})

    snapshot("accounts", add(those)["error"], ask(those, "remove", name="work")["error"])
    assert those.pool.get(WORK) is not None


def test_an_account_that_the_configuration_took_over_can_be_removed_from_the_registry(
    home: Path,
) -> None:
    home.mkdir()
    add(managed(home))
    those = managed(home, account("work"), configured={WORK})

    removed = ask(those, "remove", name="work")
    assert removed == {"removed": "work", "left": 1, "configured": True}
    assert AccountRegistry(home).all() == {}
    assert those.pool.get(WORK) is not None


# The registry.


def test_an_invalid_registry_is_named(home: Path, snapshot: Snapshot) -> None:
    home.mkdir()
    (home / REGISTRY_NAME).write_text("{")

    with pytest.raises(ConfigError) as raised:
        AccountRegistry(home)
    snapshot("errors", raised.value, home=home)


def test_a_registry_with_an_invalid_account_is_named_without_its_secret(home: Path) -> None:
    home.mkdir()
    (home / REGISTRY_NAME).write_text('{"work": {"key": "sk-secret-1"}}')

    with pytest.raises(ConfigError) as raised:
        AccountRegistry(home)
    assert "secret-1" not in str(raised.value)


# The preview: where the next turn of a thread would go, and nothing changes.

NO_HOME = Path("no-such-home")


def serve(those: ManagedAccounts, model: str, *, who: Identity) -> AccountId:
    thread = who.ask(0).thread
    assert thread is not None
    with those.pool.claim(AccountRequest(thread=ThreadName(thread), model=model)) as claim:
        assert isinstance(claim, Claim)
        return claim.account.id


def preview(those: ManagedAccounts, keys: KeyRing = NO_KEYS, **asked: Any) -> dict[str, Any]:
    command = {"command": "accounts.preview", "thread": "t", **asked}
    return done(partial(about_accounts, those, keys), command)


def test_a_new_thread_would_begin_where_there_is_headroom(autojump_clock: MockClock) -> None:
    those = managed(NO_HOME, account("hot", 70), account("cool", 20))
    (route,) = preview(those, model="gpt-5")["routes"]

    assert route == {
        "model": "gpt-5",
        "account": "cool",
        "move": "new",
        "reason": "strategy",
        "why": MoveReason.STRATEGY.words,
        "probe": False,
        "score": 20,
        "spent": False,
        "retry_at": None,
    }


def test_a_preview_changes_nothing(autojump_clock: MockClock) -> None:
    those = managed(NO_HOME, account("one"), account("other"))
    before = those.pool.statistics()
    first = preview(those, model="gpt-5")

    assert [preview(those, model="gpt-5") for _ in range(3)] == [first] * 3
    assert those.pool.statistics() == before


def test_without_a_model_each_family_that_the_thread_is_bound_for_is_shown(
    autojump_clock: MockClock,
) -> None:
    those = managed(NO_HOME, account("one", 10), account("other", 10))
    homes = {model: serve(those, model, who=Identity(thread="t")) for model in ("gpt-5", "o4")}
    routes = preview(those)["routes"]

    assert {route["model"]: route["account"] for route in routes} == homes
    assert {(route["move"], route["reason"]) for route in routes} == {("reused", "bound")}
    assert [route["model"] for route in preview(those, thread="other")["routes"]] == [None]


def test_a_thread_is_looked_for_among_those_of_its_key(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    keys = KeyRing(tmp_path)
    desk, lab = keys.add("desk").key.id, keys.add("lab").key.id
    those = managed(NO_HOME, account("one"), account("other"))
    principal = keys.holder(keys.add("third").secret)
    assert principal is not None
    serve(those, "gpt-5", who=Identity(principal=principal, thread="t"))

    assert preview(those, keys, key=principal)["routes"][0]["move"] == "reused"
    assert preview(those, keys, key=desk)["routes"][0]["move"] == "new"
    assert preview(those, keys, key=desk)["thread"] != preview(those, keys, key=lab)["thread"]
    assert set(preview(those, keys)) == {"error"}
    assert set(preview(those, keys, key="key-0")) == {"error"}


def test_a_preview_without_a_usable_account_says_until_when(autojump_clock: MockClock) -> None:
    (route,) = preview(managed(NO_HOME, account("one", 100)), model="gpt-5")["routes"]

    assert (route["account"], route["spent"]) == (None, True)
    assert route["retry_at"] == WALL + 5 * 3600


@pytest.mark.parametrize("thread", ["", " ", "a\nb", "x" * 513])
def test_an_id_that_no_client_could_send_is_refused(thread: str, autojump_clock: MockClock) -> None:
    assert set(preview(managed(NO_HOME, account("one")), thread=thread)) == {"error"}


def test_a_refused_preview_is_explained(
    tmp_path: Path, autojump_clock: MockClock, snapshot: Snapshot
) -> None:
    keys = KeyRing(tmp_path)
    keys.add("desk")
    those = managed(NO_HOME, account("one"))
    answers = [
        preview(those, thread=""),
        preview(managed(NO_HOME)),
        preview(those, keys),
        preview(those, keys, key="key-0"),
    ]

    snapshot("accounts", *(each["error"] for each in answers))
