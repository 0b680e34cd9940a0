"""Pigeon post: an adapter for Palaver."""
