"""The soak: whole gateways for a long time of the real clock, with everything that can go wrong at once."""
