"""Transactions on SQLite and PostgreSQL, schema and migrations."""
