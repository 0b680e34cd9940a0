"""The tools that the gateway gives its agents."""
