"""The voice protocol: turn recordings into text, and text into recordings."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Protocol

from palaver.model.attachment import NewFile
from palaver.model.errors import PalaverError

__all__ = ["Speaker", "Transcriber", "Voice", "VoiceFailed", "VoiceFormat"]


class VoiceFormat(StrEnum):
    """Formats of recordings, as speech services call them."""

    OPUS = "opus"
    MP3 = "mp3"


class VoiceFailed(PalaverError):
    """There is no text, or no recording. The message says why, in words for people that follow a colon."""

    def __init__(self, why: str, *, is_transient: bool = False) -> None:
        super().__init__(why)
        self.is_transient = is_transient
        """Another attempt can help."""


class Transcriber(Protocol):
    async def transcribe(self, recording: NewFile) -> str:
        """Return what is said in a recording. Raises VoiceFailed. Stop at once when cancelled."""
        ...


class Speaker(Protocol):
    async def speak(self, text: str, format: VoiceFormat) -> NewFile:  # noqa: A002 - as services call it
        """Return a recording of a text, in this format if it can. Raises VoiceFailed. Stop at once when cancelled."""
        ...


@dataclass(frozen=True, kw_only=True)
class Voice:
    """What a gateway can do with speech, and its limits."""

    transcriber: Transcriber | None = None
    speaker: Speaker | None = None
    max_length: timedelta = timedelta(minutes=5)
    """Longer recordings are not transcribed."""
    max_characters: int = 2_000
    """Longer texts are not spoken."""
    minute_price: float = 0.0
    """What a minute of transcription costs, in the currency of the price table."""
    character_price: float = 0.0
    """What a million characters of speech cost."""
