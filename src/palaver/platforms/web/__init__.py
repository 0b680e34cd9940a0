"""The web chat as a platform."""
