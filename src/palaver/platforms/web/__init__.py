"""The web chat and the HTTP API as platforms."""

from palaver.protocols import Platform

PLATFORM = Platform(
    name="web",
    title="Web chat",
    extras=("web",),
    connection="served by every gateway",
    place="web chat",
    takes_keys=True,
)

API = Platform(
    name="api",
    title="HTTP API",
    extras=("web",),
    connection="served by every gateway",
    for_people=False,
)
