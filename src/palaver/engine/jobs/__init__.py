"""Scheduled jobs: make them, fire them when they are due, run their scripts."""
