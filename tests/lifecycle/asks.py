"""Asks as the tests need them: lanes and principals by number."""

from lifecycle import Ask, LaneId, PrincipalId, RootId, ThreadId

PRINCIPAL = PrincipalId("local")


def lane(number: int) -> LaneId:
    return LaneId(f"{number:032x}")


def ask(number: int | None = None, *, worker: bool = False, body_bytes: int = 0) -> Ask:
    """An ask for lane `number`; for no lane at all without one."""
    lane_id = lane(number) if number is not None else None
    return Ask(principal=PRINCIPAL, lane=lane_id, worker=worker, body_bytes=body_bytes)


def root(number: int) -> RootId:
    """The root whose thread has this number."""
    return RootId(f"root {number}")


def thread(number: int) -> ThreadId:
    return ThreadId(f"thread {number}")


def top(number: int, in_lane: int | None = None) -> Ask:
    """A turn of a root thread."""
    lane_id = None if in_lane is None else lane(in_lane)
    return Ask(principal=PRINCIPAL, lane=lane_id, root=root(number), thread=thread(number))


def child(
    number: int,
    parent: int,
    session: int | None = None,
    *,
    worker: bool = True,
    counted: bool = True,
    in_lane: int | None = None,
) -> Ask:
    """A turn of a sub-agent; as far as it can tell, the session's root pays, or its parent's."""
    return Ask(
        principal=PRINCIPAL,
        lane=None if in_lane is None else lane(in_lane),
        root=root(parent if session is None else session),
        thread=thread(number),
        parent=thread(parent),
        worker=worker,
        counted=counted,
    )
