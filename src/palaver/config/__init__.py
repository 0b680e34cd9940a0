"""Configuration: typed model and loader, the only reader of its files and of the environment."""
