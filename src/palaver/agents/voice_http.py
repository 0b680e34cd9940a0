"""Speech over HTTP: any server with OpenAI's audio endpoints."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx2
from httpx2 import Response

from palaver.agents.voice import MAX_RECORDING_BYTES, recording_of
from palaver.model.attachment import NewFile
from palaver.protocols.voice import VoiceFailed, VoiceFormat

_CONNECT_TIMEOUT_SECONDS = 10.0
_ENDINGS = {
    "audio/ogg": "ogg",
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "audio/wav": "wav",
    "audio/webm": "webm",
    "video/webm": "webm",
    "audio/flac": "flac",
}
"""Servers tell formats by the ending of the name."""


@dataclass(frozen=True, kw_only=True)
class VoiceServer:
    url: str
    model: str
    key: str | None = field(default=None, repr=False)
    voice: str = "alloy"
    language: str | None = None
    timeout: float = 60.0

    async def transcribe(self, recording: NewFile) -> str:
        name = f"voice.{_ENDINGS.get(recording.media_type, 'ogg')}"
        fields = {"model": self.model, "response_format": "json"}
        if self.language:
            fields["language"] = self.language
        files = {"file": (name, recording.content, recording.media_type)}
        async with self._posted("audio/transcriptions", data=fields, files=files) as response:
            try:
                found: Any = response.json()
                return str(found["text"]).strip()
            except (ValueError, KeyError, TypeError) as error:
                raise VoiceFailed("the service for it gave no text") from error

    async def speak(self, text: str, format: VoiceFormat) -> NewFile:  # noqa: A002
        asked = {"model": self.model, "input": text, "voice": self.voice, "response_format": format.value}
        async with self._posted("audio/speech", json=asked) as response:
            return recording_of(response.content)

    @asynccontextmanager
    async def _posted(self, path: str, **content: Any) -> AsyncGenerator[Response]:  # noqa: ANN401
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        timeout = httpx2.Timeout(self.timeout, connect=_CONNECT_TIMEOUT_SECONDS)
        try:
            async with (
                httpx2.AsyncClient(timeout=timeout, headers=headers) as client,
                client.stream("POST", f"{self.url.rstrip('/')}/{path}", **content) as response,
            ):
                await _check(response)
                yield response
        except httpx2.HTTPError as error:
            raise VoiceFailed("the service for it did not answer", is_transient=True) from error


async def _check(response: Response) -> None:
    """Read the whole answer, up to a limit. Raises VoiceFailed if it is an error."""
    status = response.status_code
    if status != HTTPStatus.OK:
        is_transient = status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR
        raise VoiceFailed(f"the service for it answered with status {status}", is_transient=is_transient)
    if int(response.headers.get("content-length", 0)) > MAX_RECORDING_BYTES:
        raise VoiceFailed("the service for it sent too much")
    await response.aread()
