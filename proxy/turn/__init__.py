"""One turn, from its lease to its end."""
