"""IRC: one connection to one network."""
