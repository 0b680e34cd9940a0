"""Durable state by subject, with the SQL beside each function."""
