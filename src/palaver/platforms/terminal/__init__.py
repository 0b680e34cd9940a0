"""The terminal as a platform: the gateway's end of a local socket, and the end at which people sit."""

from palaver.model.platform import Platform

PLATFORM = Platform(
    name="terminal",
    title="Terminal",
    needs="nothing",
    connection="served by every gateway",
    place="CLI terminal",
    takes_keys=True,
)
