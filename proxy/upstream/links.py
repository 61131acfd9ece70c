"""Links: the connections that stand free, for each origin in a stack, the last used on top."""

from collections import deque
from typing import Final

from proxy.upstream.link import Link
from proxy.upstream.target import Origin

IDLE_SECONDS: Final = 55.0  # load balancers commonly drop an idle connection after 60 s


class Links:
    def __init__(self) -> None:
        self._free: dict[Origin, deque[tuple[float, Link]]] = {}

    def take(self, origin: Origin, now: float) -> Link | None:
        """The last used one that is still alive; what has stood for long is closed."""
        self._expire(now - IDLE_SECONDS)
        free = self._free.get(origin)
        while free:
            link = free.pop()[1]
            if link.is_quiet():
                return link
            link.close()
        return None

    def put(self, origin: Origin, link: Link, now: float) -> None:
        self._free.setdefault(origin, deque()).append((now, link))

    def close(self) -> None:
        for free in self._free.values():
            for _, link in free:
                link.close()
        self._free.clear()

    def _expire(self, since: float) -> None:
        for origin in [origin for origin, free in self._free.items() if not free]:
            del self._free[origin]
        for free in self._free.values():
            while free and free[0][0] <= since:
                free.popleft()[1].close()
