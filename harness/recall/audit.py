"""PURE what the upstream was sent, held against the plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from harness.recall.plan import ScriptedExchange, SessionPlan
from harness.recall.requests import SHAPE, exchange_named, foreign_secrets, kinship
from harness.recall.script import expected_input

_NOT_FOR_UPSTREAM = ("type", "generate", "previous_response_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One request as it reached the upstream: whose it is, and what is wrong with it."""

    session: SessionPlan
    exchange: ScriptedExchange
    problems: tuple[str, ...]


def read_request(
    sessions: Mapping[str, SessionPlan], headers: Mapping[str, str], body: bytes
) -> Arrival | str:
    """Return whose request this is, or a text that says why it belongs to no session."""
    session = sessions.get(headers.get("thread-id", ""))
    if session is None:
        return f"a request of an unknown thread {headers.get('thread-id')!r}"
    exchange = exchange_named(headers.get("x-codex-turn-metadata", ""))
    if exchange is None or exchange.turn >= len(session.turns):
        return f"{session.name}: a request whose turn metadata names no turn"
    problems = tuple(_problems(session, exchange, headers, body))
    return Arrival(session=session, exchange=exchange, problems=problems)


def _problems(
    session: SessionPlan, exchange: ScriptedExchange, headers: Mapping[str, str], body: bytes
) -> list[str]:
    sent = msgspec.json.decode(body)
    problems = [f"{name} was changed" for name in SHAPE if sent.get(name) != SHAPE[name]]
    problems += [f"{name} was sent up" for name in _NOT_FOR_UPSTREAM if name in sent]
    if exchange.thread_id != session.thread_id:
        problems.append("turn metadata names another thread")
    for name, value in (("session-id", session.session_id), *kinship(session)):
        if headers.get(name) != value:
            problems.append(f"{name} was changed")
    if sent.get("prompt_cache_key") != session.session_id:
        problems.append("prompt_cache_key was changed")
    everything = b"\n".join([body, *(value.encode() for value in headers.values())])
    if foreign_secrets(everything, session.secret):
        problems.append("a secret of another session crossed upstream")
    problems += _difference(expected_input(session, exchange), sent.get("input"))
    return problems


def _difference(expected: list[dict[str, Any]], seen: object) -> list[str]:
    """Return the first place where two inputs differ."""
    if seen == expected:
        return []
    if not isinstance(seen, list):
        return ["the input is not a list"]
    for place, (wanted, got) in enumerate(zip(expected, seen, strict=False)):
        if wanted != got:
            what = got.get("type") if isinstance(got, dict) else type(got).__name__
            return [f"input differs at item {place}: {wanted['type']} expected, {what} seen"]
    return [f"the input has {len(seen)} items, {len(expected)} expected"]
