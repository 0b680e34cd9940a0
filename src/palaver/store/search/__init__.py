"""The full-text index, apart from the truth."""
