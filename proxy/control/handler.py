"""The handler of commands, on the running process's own objects.

A running turnlane is the only writer of its home, so commands reach it over its control socket.
Those about keys and accounts also work while none runs (`proxy.control.offline`).
"""

from dataclasses import asdict
from typing import assert_never

import trio

from lifecycle import RootId
from proxy.accounts.opening import ManagedAccounts
from proxy.accounts.view import AccountId
from proxy.control.accounts import about_accounts, no_account, shown
from proxy.control.checkup import Checkups
from proxy.control.commands import (
    AccountChange,
    AccountCommand,
    AccountTested,
    ClearWorkflow,
    Command,
    KeyCommand,
    ListWorkflows,
    PastShown,
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
from proxy.journal.record import Outcome, Transport, TurnRecord
from proxy.journal.summary import past
from proxy.runtime import Runtime


class Handler:
    """Carries out commands on a runtime; `url` is where this process listens."""

    def __init__(self, runtime: Runtime, url: str) -> None:
        self._runtime = runtime
        self._url = url
        self._managed = ManagedAccounts(
            pool=runtime.accounts,
            registry=runtime.registry,
            opener=runtime.opener,
            configured=runtime.config.accounts,
        )
        self.checkups = Checkups(
            accounts=runtime.accounts,
            upstream=runtime.upstream,
            upstream_url=runtime.config.upstream.url,
            wall=runtime.wall,
        )

    def __repr__(self) -> str:
        return f"<Handler of {self._url}>"

    async def answer(self, command: Command) -> object:
        """Carry out one command and return its answer. Raises CommandFailed."""
        runtime = self._runtime
        if isinstance(command, KeyCommand):
            return about_keys(runtime.keys, command)
        if isinstance(command, AccountCommand):
            return self._about_accounts(command)
        match command:
            case TestAccount(name=name):
                return await self._test(AccountId(name))
            case ShowStatus():
                return status(runtime)
            case ShowPast():
                return PastShown(past=past(tuple(runtime.journal.recent), runtime.wall()))
            case ShowUrl():
                return UrlShown(url=self._url, upstream=runtime.config.upstream.url)
            case ListWorkflows():
                return self._list_workflows()
            case ClearWorkflow(root=root):
                return self._clear(root)
            case _:
                assert_never(command)

    def _about_accounts(self, command: AccountCommand) -> object:
        answer = about_accounts(self._managed, self._runtime.keys, command)
        if isinstance(command, AccountChange):
            self._note(Outcome.CHANGED, account=command.name, reason=command.tag)
        return answer

    async def _test(self, name: AccountId) -> AccountTested:
        pool = self._runtime.accounts
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
        each = self._runtime.admission.workflows.each(trio.current_time())
        return WorkflowsListed(
            workflows=tuple(
                ShownWorkflow(root=root, **asdict(budget)) for root, budget in each.items()
            )
        )

    def _clear(self, named: str) -> WorkflowCleared:
        """Clear the one root whose digest begins so."""
        tracked = self._runtime.admission.workflows.each(trio.current_time())
        found = [root for root in tracked if root.startswith(named)]
        if len(found) != 1 or not named:
            raise CommandFailed(f"{named!r} matches {len(found)} tracked roots, but must match one")
        self._runtime.admission.workflows.clear(found[0])
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
        self._runtime.journal.record(
            TurnRecord(
                wall=self._runtime.wall(),
                principal="operator",
                transport=Transport.CONTROL,
                outcome=outcome,
                root=root,
                account=account,
                reason=reason,
            )
        )
