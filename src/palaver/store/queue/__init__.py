"""Inbox, ready queue, turns and outbox."""
