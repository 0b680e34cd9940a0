"""The web chat as a platform."""

from palaver.protocols import Platform

PLATFORM = Platform(
    name="web",
    title="Web chat",
    extras=("web",),
    connection="served by every gateway",
    place="web chat",
    takes_keys=True,
)
