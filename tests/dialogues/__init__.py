"""Conversations as people have them: what is said, and what is heard."""
