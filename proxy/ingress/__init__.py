"""Ingress: what arrives from clients over ASGI, and what goes back to them."""
