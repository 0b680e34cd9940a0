"""Microsoft Teams: a bot of the Bot Framework."""
