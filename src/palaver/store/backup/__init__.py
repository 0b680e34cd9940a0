"""Backups: archives of a SQLite store with its files, made while a gateway runs."""
