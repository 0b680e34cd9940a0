"""The composition root: builds the parts, starts, reloads, drains and stops them."""
