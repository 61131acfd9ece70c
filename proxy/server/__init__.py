"""The HTTP server: hypercorn, one connection at a time, tamed."""
