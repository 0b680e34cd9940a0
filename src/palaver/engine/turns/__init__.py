"""Turns: claim, run the agent, settle."""
