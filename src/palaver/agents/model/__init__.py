"""The model agent: a model of any provider, asked and listened to."""
