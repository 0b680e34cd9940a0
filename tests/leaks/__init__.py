"""Leak tests: people who try everything, and an oracle that knows what each of them may see."""
