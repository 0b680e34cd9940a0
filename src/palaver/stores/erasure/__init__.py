"""Erasure: everything of a person found, written out, taken away in steps, and proved to be gone."""
