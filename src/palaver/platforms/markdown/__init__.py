"""Markdown as agents write it, read once into a small tree that every adapter renders in its platform's way."""
