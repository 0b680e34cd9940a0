"""People, identities, links, grants, pairing and usage."""
