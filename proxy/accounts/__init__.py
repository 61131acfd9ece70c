"""Accounts: the upstream credentials, and which of them serves a turn."""
