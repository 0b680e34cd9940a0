"""Delivery: the outbox worker and everything that sends."""
