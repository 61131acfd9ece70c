"""PURE the load of a simulation: what is assumed of conversations, and their turns from a seed."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The incident is 1.9e9 input tokens in 15,607 requests in 13 hours; the rest follows."""

    hours: float = 13.0
    conversations: int = 16
    """At once: 15,607 requests in 13 h are one every 3 s, and one conversation's come 48 s apart
    by the three numbers below."""
    turn_seconds: float = 20.0
    tool_seconds: float = 11.0
    """Mean of an exponential: between a turn and the next of the same conversation."""
    pause_every: int = 30
    """In the mean one turn in so many is followed by a person who thinks."""
    pause_seconds: tuple[float, float] = (120.0, 900.0)
    opening_tokens: int = 15_000
    """Instructions, tools and the first message."""
    turn_tokens: tuple[int, int] = (4_000, 10_000)
    """New in every turn: 7 k in the mean."""
    longest_tokens: int = 230_000
    """Then it is compacted or followed by another. From 15 k to here the mean is the incident's:
    122 k a request."""
    one_off_share: float = 0.02
    """The share of requests by sub-agents with one turn, which no cache knows."""
    one_off_tokens: int = 150_000
    retry_seconds: float = 300.0
    """A turn that is refused is asked again at the reset, or after this if that is sooner; its
    conversation pauses until then."""

    def begins_anew(self, tokens: int) -> bool:
        return tokens + self.turn_tokens[1] > self.longest_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class SimTurn:
    """One request. Turns of one `prompt` each begin with all of the one before."""

    thread: str
    prompt: str
    tokens: int
    new_tokens: int
    parent: str | None = None
    rest_seconds: float
    """From its end to the next request of its conversation."""


def turns(load: Load, seed: int, lane: int) -> Iterator[SimTurn]:
    """Yield the turns of one conversation after another, without end; the same for every rule."""
    rng = Random(f"turnlane simulate {seed} {lane}")
    thread, prompt, one_offs = 0, 0, 0
    tokens = _opening(load, rng)
    new = tokens
    while True:
        name = f"{lane}/{thread}"
        yield SimTurn(
            thread=name,
            prompt=f"{name}/{prompt}",
            tokens=tokens,
            new_tokens=new,
            rest_seconds=_rest(load, rng),
        )
        if rng.random() < load.one_off_share:
            one_offs += 1
            yield _one_off(load, rng, name, one_offs)
        if load.begins_anew(tokens):
            prompt += 1
            thread += rng.randrange(2)  # another conversation, or the same compacted
            tokens = new = _opening(load, rng)
        else:
            new = rng.randint(*load.turn_tokens)
            tokens += new


def _one_off(load: Load, rng: Random, parent: str, number: int) -> SimTurn:
    name = f"{parent}+{number}"
    return SimTurn(
        thread=name,
        prompt=name,
        tokens=load.one_off_tokens,
        new_tokens=load.one_off_tokens,
        parent=parent,
        rest_seconds=_rest(load, rng),
    )


def _opening(load: Load, rng: Random) -> int:
    return load.opening_tokens + rng.randint(*load.turn_tokens)


def _rest(load: Load, rng: Random) -> float:
    rest = rng.expovariate(1 / load.tool_seconds)
    if rng.random() * load.pause_every < 1:
        rest += rng.uniform(*load.pause_seconds)
    return rest
