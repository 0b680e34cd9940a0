"""The terminal as a platform: the gateway's end of a local socket, and the end at which people sit."""
