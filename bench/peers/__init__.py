"""The session stores of other projects on the same turn, each in an environment of its own."""
