"""The handler of commands, on the running process's own objects.

A running turnlane is the only writer of its home, so commands reach it over its control socket.
Those about keys and accounts also work while none runs (`proxy.control.offline`).
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, assert_never

import trio

from lifecycle import RootId, Workflows
from proxy.accounts.opening import ManagedAccounts
from proxy.accounts.view import AccountId
from proxy.control.accounts import about_accounts, no_account, shown
from proxy.control.checkup import Checkups
from proxy.control.commands import (
    AccountAnswer,
    AccountCommand,
    AccountTested,
    AddAccount,
    AddKey,
    Answer,
    ClearWorkflow,
    Command,
    ImportAccount,
    ListAccounts,
    ListKeys,
    ListWorkflows,
    PastShown,
    PauseAccount,
    PreviewThread,
    RemoveAccount,
    ResumeAccount,
    RevokeKey,
    ShownWorkflow,
    ShowPast,
    ShowStatus,
    ShowUrl,
    TestAccount,
    UrlShown,
    WorkflowCleared,
    WorkflowsListed,
)
from proxy.control.keys import about_keys
from proxy.errors import CommandFailed
from proxy.ingress.status import status
from proxy.journal.journal import Journal
from proxy.journal.record import Outcome, Transport, TurnRecord
from proxy.journal.summary import past
from proxy.keys import KeyRing
from proxy.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """The parts that commands work with. `url` is where this process listens, `upstream` where
    turns go unless their account says otherwise."""

    keys: KeyRing
    accounts: ManagedAccounts
    checkups: Checkups
    workflows: Workflows
    journal: Journal
    status: Callable[[], dict[str, Any]]
    url: str
    upstream: str | None
    wall: Callable[[], float]

    async def answer(self, command: Command) -> Answer:
        """Carry out one command. Raises CommandFailed."""
        match command:
            case AddKey() | ListKeys() | RevokeKey():
                return about_keys(self.keys, command)
            case (
                ListAccounts()
                | PreviewThread()
                | AddAccount()
                | ImportAccount()
                | RemoveAccount()
                | PauseAccount()
                | ResumeAccount()
            ):
                return self._about_accounts(command)
            case TestAccount(name=name):
                return await self._test(AccountId(name))
            case ShowStatus():
                return self.status()
            case ShowPast():
                return PastShown(past=past(tuple(self.journal.recent), self.wall()))
            case ShowUrl():
                return UrlShown(url=self.url, upstream=self.upstream)
            case ListWorkflows():
                return self._list_workflows()
            case ClearWorkflow(root=root):
                return self._clear(root)
            case _:
                assert_never(command)

    def _about_accounts(self, command: AccountCommand) -> AccountAnswer:
        answer = about_accounts(self.accounts, self.keys, command)
        if not isinstance(command, ListAccounts | PreviewThread):
            self._note(Outcome.CHANGED, account=command.name, reason=command.tag)
        return answer

    async def _test(self, name: AccountId) -> AccountTested:
        pool = self.accounts.pool
        account = pool.get(name)
        if account is None:
            raise no_account(pool, name)
        found = await self.checkups.check(account)
        return AccountTested(
            account=shown(pool, name),
            credential=found.credential,
            detail=found.detail,
            usage=found.usage,
        )

    def _list_workflows(self) -> WorkflowsListed:
        self._note(Outcome.LISTED)
        each = self.workflows.each(trio.current_time())
        return WorkflowsListed(
            workflows=tuple(
                ShownWorkflow(root=root, **asdict(budget)) for root, budget in each.items()
            )
        )

    def _clear(self, named: str) -> WorkflowCleared:
        """Clear the one root whose digest begins so."""
        tracked = self.workflows.each(trio.current_time())
        found = [root for root in tracked if root.startswith(named)]
        if len(found) != 1 or not named:
            raise CommandFailed(f"{named!r} matches {len(found)} tracked roots, but must match one")
        self.workflows.clear(found[0])
        self._note(Outcome.CLEARED, root=found[0])
        return WorkflowCleared(cleared=found[0])

    def _note(
        self,
        outcome: Outcome,
        *,
        root: RootId | None = None,
        account: str | None = None,
        reason: str | None = None,
    ) -> None:
        self.journal.record(
            TurnRecord(
                wall=self.wall(),
                principal="operator",
                transport=Transport.CONTROL,
                outcome=outcome,
                root=root,
                account=account,
                reason=reason,
            )
        )


def handler_of(runtime: Runtime, url: str) -> Handler:
    """Take from a runtime what commands work with; only the process that listens knows its URL."""
    return Handler(
        keys=runtime.keys,
        accounts=ManagedAccounts(
            pool=runtime.accounts,
            registry=runtime.registry,
            opener=runtime.opener,
            configured=runtime.config.accounts,
        ),
        checkups=Checkups(
            accounts=runtime.accounts,
            upstream=runtime.upstream,
            upstream_url=runtime.config.upstream.url,
            wall=runtime.wall,
        ),
        workflows=runtime.admission.workflows,
        journal=runtime.journal,
        status=partial(status, runtime),
        url=url,
        upstream=runtime.config.upstream.url,
        wall=runtime.wall,
    )
