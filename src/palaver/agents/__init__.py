"""Agents: what answers a turn."""
