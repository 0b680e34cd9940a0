"""The heart: from a message to its answer. Speaks only ports."""
