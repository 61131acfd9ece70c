"""Flow: what a turn puts out, handed on as it comes; a filler when nothing has come for long."""

from collections.abc import Awaitable, Callable

import trio

from proxy.outbox import Outbox, Taken


async def hand_on(
    outbox: Outbox,
    write: Callable[[Taken], Awaitable[bool]],
    filler_seconds: float,
    fill: Callable[[], Awaitable[None]],
) -> Taken:
    """Give `write` everything until it returns False, and return what it was given then.

    One timer serves many writes: it is looked at when it goes off, and not moved at each of them.
    So `write` may be cancelled, wherever it waits, and must not wait where that would lose bytes.
    """
    heard = trio.current_time()
    while True:
        with trio.CancelScope(deadline=heard + filler_seconds):
            while True:
                taken = await outbox.take()
                if not await write(taken):
                    return taken
                heard = trio.current_time()
        if trio.current_time() >= heard + filler_seconds:
            await fill()
            heard = trio.current_time()
