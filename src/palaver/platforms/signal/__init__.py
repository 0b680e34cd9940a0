"""Signal, through a signal-cli daemon."""
