"""The HTTP API as a platform."""
