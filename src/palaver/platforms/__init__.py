"""Chat platforms: the catalogue and the adapters."""
