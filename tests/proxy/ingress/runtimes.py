"""A Runtime for what is pure: settings to read, and nothing that runs."""

from lifecycle import Admission, Limits
from proxy.accounts.pool import AccountPool
from proxy.accounts.route import RoutingSettings
from proxy.config.load import Config
from proxy.config.settings import ClientSettings
from proxy.journal.journal import Journal
from proxy.runtime import Runtime
from tests.testkit.runtime import NO_KEYS, NO_REGISTRY, opener
from tests.testkit.upstream import FakeUpstream

WALL = 1_800_000_000.0


def runtime(limits: Limits | None = None, client: ClientSettings | None = None) -> Runtime:
    limits = limits or Limits()
    return Runtime(
        config=Config(limits=limits, client=client or ClientSettings()),
        admission=Admission(limits),
        upstream=FakeUpstream(),
        journal=Journal(),
        keys=NO_KEYS,
        accounts=AccountPool((), RoutingSettings(), lambda: WALL),
        registry=NO_REGISTRY,
        opener=opener(),
        wall=lambda: WALL,
        started=0.0,
    )
