"""Gateways on a PostgreSQL that fails over, with real servers."""
