"""The data directory: its lock, and which processes still drain."""
