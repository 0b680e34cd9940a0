"""The window: dashboard, web chat and API, served by the gateway itself."""
