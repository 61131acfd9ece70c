"""Preview: where the next turn of a thread would go; changes nothing."""

from collections.abc import Mapping
from typing import Any

from lifecycle import PrincipalId
from proxy.accounts.bindings import ThreadName
from proxy.accounts.claim import AccountRequest
from proxy.accounts.opening import ManagedAccounts
from proxy.accounts.route import Withheld
from proxy.accounts.wording import out_of_use, why
from proxy.control.accounts import Answer
from proxy.ingress.identity import LOCAL, Identity, from_frame
from proxy.keys import KeyRing


def preview(managed: ManagedAccounts, keys: KeyRing, asked: Mapping[str, Any]) -> Answer:
    """`thread` is the client's own id. Without a `model`: for each family that it is bound for."""
    principal = LOCAL if asked.get("key") is None else PrincipalId(str(asked["key"]))
    if principal is LOCAL and len(keys):
        return {"error": "callers have keys here: say whose thread it is with --key ID"}
    if principal is not LOCAL and not keys.knows(principal):
        return {"error": f"there is no key {principal}"}
    named = {"thread_id": str(asked.get("thread", ""))}
    thread = from_frame(named, Identity(principal=principal)).ask(0).thread
    if thread is None:
        return {"error": "that is no id of a thread"}
    if not len(managed.pool):
        return {"error": "there are no accounts: each client's own login is used"}
    name = ThreadName(thread)
    model = asked.get("model")
    bound: list[str | None] = [*managed.pool.families(name)]
    models = [str(model)] if model else bound or [None]
    return {"thread": thread, "routes": [_route(managed, name, each) for each in models]}


def _route(managed: ManagedAccounts, thread: ThreadName, model: str | None) -> Answer:
    found = managed.pool.preview(AccountRequest(thread=thread, model=model))
    if isinstance(found, Withheld):
        return {
            "model": model,
            "account": None,
            "move": found.move,
            "reason": found.reason,
            "spent": found.spent,
            "retry_at": found.retry_at,
            "why": out_of_use(found.standings),
        }
    scores = {each.id: each.score for each in managed.pool.statistics()}
    return {
        "model": model,
        "account": found.account,
        "move": found.move,
        "reason": found.reason,
        "why": why(found.reason),
        "probe": found.probe,
        "score": scores[found.account],
    }
