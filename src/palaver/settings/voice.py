"""Voice: which service or program transcribes voice messages and speaks answers, and within which limits."""

from datetime import timedelta
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from palaver.model.errors import BadArgument
from palaver.settings.agents import web_address
from palaver.settings.tools import Words
from palaver.settings.types import Duration, MaybeKey, MaybeName, Section, Syntax, as_pydantic_error

_OPENAI = "https://api.openai.com/v1"
_SECOND, _HOUR = timedelta(seconds=1), timedelta(hours=1)
Price = Annotated[float, Field(ge=0, le=1_000_000), Syntax("an amount", "0.006")]
Command = Annotated[Words, Syntax("a program and its arguments", '["espeak-ng", "--stdout"]')]


class _ServiceConfig(Section):
    model: MaybeName = Field(default=None, description="Use this model of the service.")
    url: Annotated[str, AfterValidator(web_address), Syntax("a web address", "http://127.0.0.1:8000/v1")] = Field(
        default=_OPENAI, description="Use this service, which must have OpenAI's audio endpoints."
    )
    key: MaybeKey = Field(default=None, repr=False, description="Your API key.")
    command: Command = Field(default=(), description="Run this program instead of a service.")
    timeout: Duration = Field(
        default=timedelta(minutes=1), ge=_SECOND, le=_HOUR, description="Give up after this long."
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.model and self.command:
            raise as_pydantic_error(
                BadArgument(
                    "voice takes a model of a service or a command, not",
                    found="both",
                    allowed="model, or command",
                    example="{model: whisper-1, key: '${OPENAI_API_KEY}'}",
                )
            )
        return self

    @property
    def is_on(self) -> bool:
        return bool(self.model or self.command)

    def facts(self) -> dict[str, Any]:
        """Return how to reach the service, the key included."""
        key = self.key.get_secret_value() if self.key else None
        return {"url": self.url, "model": self.model, "key": key, "timeout": self.timeout.total_seconds()}


class TranscriptionConfig(_ServiceConfig):
    language: MaybeName = Field(default=None, description="The language that people speak, such as en. Default: any.")
    price: Price = Field(default=0.0, description="What a minute costs, to count it.")
    max_length: Duration = Field(
        default=timedelta(minutes=5), ge=_SECOND, le=_HOUR, description="Transcribe only messages up to this length."
    )

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "language": self.language}


class SpeechConfig(_ServiceConfig):
    voice: Annotated[str, Syntax("a voice of the service", "alloy")] = Field(
        default="alloy", description="Speak with this voice."
    )
    price: Price = Field(default=0.0, description="What a million characters cost, to count them.")
    max_characters: int = Field(default=2_000, ge=1, le=4_096, description="Speak only answers up to this length.")

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "voice": self.voice}


class VoiceConfig(Section):
    transcription: TranscriptionConfig = Field(
        default=TranscriptionConfig(), description="How voice messages become text."
    )
    speech: SpeechConfig = Field(default=SpeechConfig(), description="How answers become voice messages.")
