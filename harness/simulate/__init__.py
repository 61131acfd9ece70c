"""A model of accounts and their prompt caches: the cost of routing rules on a seeded load."""
