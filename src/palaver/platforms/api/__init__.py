"""The HTTP API as a platform: programs that talk to the gateway."""

from palaver.protocols import Platform

PLATFORM = Platform(
    name="api",
    title="HTTP API",
    extras=("web",),
    connection="served by every gateway",
    for_people=False,
)
