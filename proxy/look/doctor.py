"""Doctor: everything that can be wrong around a turnlane, each with the command that mends it.

Each check looks at one thing, changes nothing, and says what it found; only the upstreams are asked
over the network. What cannot be looked into is a warning, never a pass.
"""

from collections.abc import Iterator

from proxy.look.finding import Finding, Patient
from proxy.look.inside import inside
from proxy.look.outside import outside


def examine(patient: Patient) -> Iterator[Finding]:
    """Every finding, as it is made."""
    yield from inside(patient)
    yield from outside(patient)
