"""Make what transcribes and speaks, as the configuration says."""

import os

from palaver.agents.plugins import import_extra
from palaver.agents.process import safe_environment
from palaver.agents.voice import VoiceCommand
from palaver.protocols.voice import Voice
from palaver.settings.voice import SpeechConfig, TranscriptionConfig, VoiceConfig


def make_voice(config: VoiceConfig) -> Voice | None:
    """Return None if nothing is configured. Raises InvalidInput with what to install."""
    heard, spoken = config.transcription, config.speech
    if not heard.is_on and not spoken.is_on:
        return None
    return Voice(
        transcriber=_make(heard) if heard.is_on else None,
        speaker=_make(spoken) if spoken.is_on else None,
        max_length=heard.max_length,
        max_characters=spoken.max_characters,
        minute_price=heard.price,
        character_price=spoken.price,
    )


def _make(config: TranscriptionConfig | SpeechConfig) -> VoiceCommand:
    if config.command:
        timeout = config.timeout.total_seconds()
        return VoiceCommand(command=config.command, environ=safe_environment(os.environ), timeout=timeout)
    made: VoiceCommand = import_extra("palaver.agents.voice_http", "Voice services need", "http").VoiceServer(
        **config.facts()
    )
    return made
