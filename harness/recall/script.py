"""PURE what the scripted model says: the input it must be shown, and the events it answers with."""

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, Final

import msgspec

from harness.recall.calls import Call, Item, call_item, message, output_item
from harness.recall.faults import Fault, Step
from harness.recall.plan import Plan, ScriptedExchange, SessionPlan, TurnPlan
from harness.recall.requests import SHAPE, instructions

EventFields = dict[str, Any]

SLOW_DELTAS = 160
SLOW_DELTA_BYTES = 8192
USAGE: Final = {
    "input_tokens": 100,
    "output_tokens": 5,
    "total_tokens": 105,
    "input_tokens_details": {"cached_tokens": 50},
    "output_tokens_details": {"reasoning_tokens": 0},
}


def expected_input(session: SessionPlan, exchange: ScriptedExchange) -> list[Item]:
    """Return the whole input of a request, whatever part of it its client had to send."""
    items = [instructions()]
    for turn in session.turns[: exchange.turn + 1]:
        for step in Step:
            last = turn.number == exchange.turn and step is exchange.step
            items += asked(session, turn, step)
            if turn.fault_at(step, 1) is Fault.INTERRUPT and not (last and exchange.attempt == 1):
                items += [partial_item(session, turn), steering(session, turn)]
            if last:
                return items
            items += answered(session, turn, step)
    raise ValueError(f"no such exchange: {exchange.tag}")


def asked(session: SessionPlan, turn: TurnPlan, step: Step) -> list[Item]:
    """Return the items that a client adds at this step."""
    if step is Step.RECALL:
        return [output_item(call_item(call), session.secret) for call in turn.calls]
    text = f"Turn {turn.number}: find {session.secret}"
    return [message("user", text, f"msg_user_{turn.turn_id}")]


def answered(session: SessionPlan, turn: TurnPlan, step: Step) -> list[Item]:
    """Return the items that the model adds at this step."""
    if step is Step.CALLS:
        return [call_item(call) for call in turn.calls]
    seen = " ".join(call.call_id for call in turn.calls)
    text = f"{session.secret} was found by {seen}"
    return [message("assistant", text, f"msg_answer_{turn.turn_id}")]


def partial_item(session: SessionPlan, turn: TurnPlan) -> Item:
    """Return the item that an interrupted response had completed."""
    return message("assistant", f"Looking for {session.secret}", f"msg_partial_{turn.turn_id}")


def steering(session: SessionPlan, turn: TurnPlan) -> Item:
    """Return what the user of an interrupted turn says next."""
    return message("user", f"Rather like this: {session.secret}", f"msg_steer_{turn.turn_id}")


def calls_served(plan: Plan, session: SessionPlan, turn: TurnPlan) -> tuple[Call, ...]:
    """Return the calls of a turn, after the swap that `--inject swap` asks for."""
    if plan.swap and turn.number == 0 and len(plan.waves) > 1:
        first, second = plan.waves[:2]
        others = {first.thread_id: second, second.thread_id: first}
        if session.thread_id in others:
            return (others[session.thread_id].turns[0].calls[0], *turn.calls[1:])
    return turn.calls


def events(plan: Plan, session: SessionPlan, exchange: ScriptedExchange) -> list[EventFields]:
    """Return the whole answer to a request, numbered, each event marked with the exchange."""
    turn = session.turns[exchange.turn]
    fault = turn.fault_at(exchange.step, exchange.attempt)
    if fault is Fault.INTERRUPT:
        items = [partial_item(session, turn)]
    elif exchange.step is Step.CALLS:
        items = [call_item(call) for call in calls_served(plan, session, turn)]
    else:
        items = answered(session, turn, Step.RECALL)
    deltas = SLOW_DELTAS if fault is Fault.SLOW_READER else 3
    said = [event for i, item in enumerate(items) for event in _item_events(i, item, deltas)]
    response = {"id": response_id(exchange), "object": "response", "model": SHAPE["model"]}
    if fault is Fault.FAILED:
        error = {"code": "server_error", "message": "the scripted model failed"}
        said = [{"type": "response.failed", "response": {**response, "error": error}}]
    else:
        done = {"status": "completed", "output": items, "usage": USAGE}
        said.append({"type": "response.completed", "response": {**response, **done}})
    begun = {"status": "in_progress", "output": []}
    said.insert(0, {"type": "response.created", "response": {**response, **begun}})
    return [{**event, "sequence_number": i, "recall": exchange.tag} for i, event in enumerate(said)]


def response_id(exchange: ScriptedExchange) -> str:
    return "resp_" + exchange.tag.replace("/", "_").replace("-", "")


def _item_events(index: int, item: Item, deltas: int) -> Iterator[EventFields]:
    place = {"output_index": index, "item_id": item["id"]}
    started = {**item, "status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": index, "item": started}
    size = SLOW_DELTA_BYTES if deltas == SLOW_DELTAS else 8
    kind = "output_text" if item["type"] == "message" else "function_call_arguments"
    for number in range(deltas):
        text = f"{number}".ljust(size, ".")
        yield {"type": f"response.{kind}.delta", "delta": text, **place}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def sse(said: Iterable[EventFields]) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), msgspec.json.encode(event))
        for event in said
    )


def chunked(data: bytes, rng: Random) -> Iterator[bytes]:
    """Cut a stream anywhere: events leave together, and in pieces."""
    cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.randint(0, 6)))
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        if start < end:
            yield data[start:end]
