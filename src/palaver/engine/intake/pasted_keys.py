"""Keys of model providers in messages: never stored; the owner's is tried while no model is connected."""

from collections.abc import Callable
from dataclasses import replace

from palaver.model.access import AccessRole
from palaver.model.platform import Platform
from palaver.model.redact import Pasted, PastedKey
from palaver.model.source import Source
from palaver.model.turn import Cause, Inbound

CONNECT = "connect"
"""The command that tries a key."""
_MAX_HELD = 8
_RECEIVED = {
    Pasted.KEY: "(key received)",
    Pasted.SEVERAL: "(several keys received)",
    Pasted.PART: "(part of a key received)",
    Pasted.INSIDE: "(key inside a longer text)",
}


class PastedKeys:
    """Holds what the owner pasted, in memory alone, until the command that stands in its place runs."""

    def __init__(self, is_wanted: Callable[[str], bool] = lambda _: False) -> None:
        """`is_wanted` tells whether a profile has no agent yet, so that the owner can connect one with a key."""
        self._is_wanted = is_wanted
        self._held: dict[tuple[str | None, ...], PastedKey] = {}

    def take_in(
        self, message: Inbound, pasted: PastedKey, platform: Platform | None, role: AccessRole | None, profile: str
    ) -> Inbound:
        """Return a message, which is `without_keys`, or the command that tries the owner's key in its place."""
        is_said = message.cause is Cause.HUMAN and message.revision is None and not (message.observed or message.plain)
        is_private = platform is not None and platform.takes_keys and role is AccessRole.OWNER
        if not (is_said and is_private and self._is_wanted(profile)):
            return message
        self._held[_name(message.source)] = pasted
        for oldest in list(self._held)[:-_MAX_HELD]:
            del self._held[oldest]
        longer = f"\n{pasted.rest}" if pasted.kind is Pasted.INSIDE else ""
        return replace(message, text=f"/{CONNECT} {pasted.provider} {_RECEIVED[pasted.kind]}{longer}", busy=None)

    def take_out(self, source: Source) -> PastedKey | None:
        """Return what was pasted in a message, once."""
        return self._held.pop(_name(source), None)


def is_received(words: str) -> bool:
    """Return whether the words of a command stand for what was pasted."""
    return any(mark in words for mark in _RECEIVED.values())


def _name(source: Source) -> tuple[str | None, ...]:
    return source.platform, source.chat_id, source.message_id
