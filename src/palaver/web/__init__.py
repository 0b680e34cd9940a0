"""The web interface: dashboard, web chat and API, served by the gateway."""
