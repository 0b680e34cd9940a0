"""The HTTP API as a platform like any other."""
