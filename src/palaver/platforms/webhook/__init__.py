"""Webhooks: programs that call us, and programs that we call."""
