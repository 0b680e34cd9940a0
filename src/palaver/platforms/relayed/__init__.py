"""Accounts that a connector holds for this gateway."""
