"""The web chat as a platform like any other."""
