"""Damage made by hand: seen, named, mended or set aside, with the rest of the store usable."""
