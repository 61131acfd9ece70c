"""The commands that a running turnlane obeys, and their answers: a line of JSON each.

The client, the fallback for a home where none runs, and the handler share these types, so this
module imports nothing heavy. What cannot be carried out is answered with `{"error": ...}`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, Generic, TypeVar, get_args

import msgspec

from proxy.accounts.route import Move, MoveReason
from proxy.accounts.statistics import AccountStatistics
from proxy.errors import CommandFailed
from proxy.journal.summary import Past
from proxy.responses.rawjson import UNREADABLE

A = TypeVar("A")


class Request(
    msgspec.Struct,
    Generic[A],
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="command",
):
    """A command whose answer is an `A`."""

    reads: ClassVar[bool] = False
    """True if it changes nothing: then it needs no lock, and its user waits only briefly."""

    @property
    def tag(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def answer_type(self) -> type[A]:
        """The `A`, as the class names it."""
        (base,) = vars(type(self))["__orig_bases__"]
        answer: type[A] = get_args(base)[0]
        return answer


# Answers.


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownKey:
    """`created` is seconds since the epoch."""

    id: str
    name: str
    created: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMade:
    """The only answer with a secret: it is not shown again."""

    key: ShownKey
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysListed:
    keys: tuple[ShownKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRevoked:
    """`left`: how many keys there still are."""

    revoked: str
    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountsListed:
    accounts: tuple[AccountStatistics, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountPut:
    """`kept`: what stays of an earlier description. `moved`: its credential is another one than
    before, which ends what was bound to it. `same_as`: other names of the same credential."""

    account: AccountStatistics | None
    replaced: bool
    kept: dict[str, str | tuple[str, ...]]
    moved: bool
    same_as: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRemoved:
    """`configured`: an account of that name stays, which config.toml describes."""

    removed: str
    left: int
    configured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountPaused:
    """`usable`: to how many accounts turns can be sent, or could if they had quota."""

    account: AccountStatistics | None
    usable: int


class Health(StrEnum):
    """The provider's judgement of a credential."""

    GOOD = "good"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountTested:
    """`detail` says what was seen, in words of our own. `usage`: the provider has reported some."""

    account: AccountStatistics | None
    credential: Health
    detail: str
    usage: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewedRoute:
    """The way that a turn with `model` would take. Without an `account`, `retry_at` is when to try
    again, in seconds since the epoch, if that is known."""

    model: str | None
    account: str | None
    move: Move | None
    reason: MoveReason
    why: str
    probe: bool = False
    score: float | None = None
    spent: bool = False
    retry_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPreviewed:
    thread: str
    routes: tuple[PreviewedRoute, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastShown:
    past: Past


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlShown:
    """The base URL that is served, and where turns go unless their account says otherwise."""

    url: str
    upstream: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownWorkflow:
    """A root, as its digest, and its `lifecycle.WorkflowStatistics`."""

    root: str
    active: int
    workers: int
    children: int
    worker_sends: int
    interactive_sends: int
    refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowsListed:
    workflows: tuple[ShownWorkflow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowCleared:
    cleared: str


# Commands.


class AddKey(Request[KeyMade], frozen=True, kw_only=True, tag="keys.add"):
    name: str


class ListKeys(Request[KeysListed], frozen=True, kw_only=True, tag="keys.list"):
    reads = True


class RevokeKey(Request[KeyRevoked], frozen=True, kw_only=True, tag="keys.revoke"):
    id: str


class ListAccounts(Request[AccountsListed], frozen=True, kw_only=True, tag="accounts.list"):
    reads = True


class AddAccount(Request[AccountPut], frozen=True, kw_only=True, tag="accounts.add"):
    """Add an account with an API key, or replace the credential of that name."""

    name: str
    secret: str
    url: str | None = None
    models: tuple[str, ...] | None = None
    organization: str | None = None
    project: str | None = None

    def __repr__(self) -> str:
        return f"AddAccount(name={self.name!r})"


class ImportAccount(Request[AccountPut], frozen=True, kw_only=True, tag="accounts.import"):
    """Use a ChatGPT login; `path` is absolute, and `copy` asks for a copy of our own."""

    name: str
    path: str
    copy: bool = False
    url: str | None = None
    models: tuple[str, ...] | None = None


class RemoveAccount(Request[AccountRemoved], frozen=True, kw_only=True, tag="accounts.remove"):
    name: str


class PauseAccount(Request[AccountPaused], frozen=True, kw_only=True, tag="accounts.pause"):
    name: str


class ResumeAccount(Request[AccountPaused], frozen=True, kw_only=True, tag="accounts.resume"):
    name: str


CHECKUP_SECONDS: Final = 45.0
"""A checkup asks the provider for two pages, and may refresh a token between them."""


class TestAccount(Request[AccountTested], frozen=True, kw_only=True, tag="accounts.test"):
    __test__: ClassVar[bool] = False  # or pytest takes it for a test

    name: str


class PreviewThread(Request[ThreadPreviewed], frozen=True, kw_only=True, tag="accounts.preview"):
    """`thread` is the client's own id, `key` the id of the key that its client uses. Without a
    `model`: for each family that the thread is bound for."""

    reads = True
    thread: str
    model: str | None = None
    key: str | None = None


class ShowStatus(Request[dict[str, Any]], frozen=True, kw_only=True, tag="status"):
    """Ask for the document that `/status` answers with."""

    reads = True


class ShowPast(Request[PastShown], frozen=True, kw_only=True, tag="past"):
    reads = True


class ShowUrl(Request[UrlShown], frozen=True, kw_only=True, tag="url"):
    reads = True


class ListWorkflows(Request[WorkflowsListed], frozen=True, kw_only=True, tag="workflows"):
    reads = True


class ClearWorkflow(Request[WorkflowCleared], frozen=True, kw_only=True, tag="workflows.clear"):
    """`root` is a digest, or the beginning of one."""

    root: str


KeyCommand = AddKey | ListKeys | RevokeKey
AccountChange = AddAccount | ImportAccount | RemoveAccount | PauseAccount | ResumeAccount
AccountCommand = AccountChange | ListAccounts | PreviewThread
ProcessCommand = TestAccount | ShowStatus | ShowPast | ShowUrl | ListWorkflows | ClearWorkflow
"""A command that only a running turnlane can carry out."""
Command = KeyCommand | AccountCommand | ProcessCommand
_command: Final = msgspec.json.Decoder[Command](Command)


def read_command(line: bytes) -> Command:
    """Read a line of JSON. Raises CommandFailed for an unknown command or field, and says which."""
    try:
        return _command.decode(line)
    except UNREADABLE as error:
        raise CommandFailed(f"not a valid command: {error}") from error
