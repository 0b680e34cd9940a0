"""The model agent: answers with a model of any provider."""
