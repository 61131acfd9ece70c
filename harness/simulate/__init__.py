"""What routing rules cost on a seeded load: a model of accounts and their prompt caches."""
