"""Upstream: physical sends to a model service, and what comes back."""
