"""Asks as the tests need them: lanes and principals by number."""

from lifecycle import Ask, LaneId, PrincipalId

PRINCIPAL = PrincipalId("local")


def lane(number: int) -> LaneId:
    return LaneId(f"{number:032x}")


def ask(number: int | None = None, *, worker: bool = False, body_bytes: int = 0) -> Ask:
    """An ask for lane `number`; for no lane at all without one."""
    lane_id = lane(number) if number is not None else None
    return Ask(principal=PRINCIPAL, lane=lane_id, worker=worker, body_bytes=body_bytes)
