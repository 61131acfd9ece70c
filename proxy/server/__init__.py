"""The HTTP server: hypercorn, with each connection kept from hurting the others."""
