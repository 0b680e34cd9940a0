"""SMS through Twilio, or a provider with the same API."""
