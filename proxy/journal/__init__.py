"""The journal: one record for each turn and refusal, in memory and in SQLite."""
