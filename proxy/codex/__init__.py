"""Connecting Codex: its configuration, and which running clients already use it."""
