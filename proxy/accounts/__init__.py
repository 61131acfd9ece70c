"""Accounts: which upstream credential serves a turn, and why; entered at the named file."""
