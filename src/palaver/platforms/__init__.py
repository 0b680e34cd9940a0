"""Chat platforms: what each one is, and the adapters that speak to them."""
