"""Discord, through its gateway and HTTP API."""
