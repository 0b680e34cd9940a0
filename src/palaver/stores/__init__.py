"""Durable state: one transactional truth, on SQLite and PostgreSQL."""
