"""The proxy: ingress on hypercorn, turns in their nurseries, upstream over HTTP."""

from importlib.metadata import version

__version__ = version("turnlane")
