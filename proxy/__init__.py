"""The proxy: ingress on hypercorn, turns in their nurseries, upstream over HTTP."""

__version__ = "0.1.0"
"""Stated here, not read from the installed metadata, which takes longer than most commands."""
