"""Speech over HTTP: any server with OpenAI's audio endpoints."""

import asyncio
import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx2
from httpx2 import Response

from palaver.agents.voice import MAX_RECORDING_BYTES, recording_of
from palaver.model.attachment import NewFile
from palaver.protocols.rest import tls_context
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
        answer = await self._post("audio/transcriptions", data=fields, files=files)
        try:
            found: Any = json.loads(answer)
            return str(found["text"]).strip()
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise VoiceFailed("the service for it gave no text") from error

    async def speak(self, text: str, format: VoiceFormat) -> NewFile:  # noqa: A002
        asked = {"model": self.model, "input": text, "voice": self.voice, "response_format": format.value}
        return recording_of(await self._post("audio/speech", json=asked))

    async def _post(self, path: str, **content: Any) -> bytes:  # noqa: ANN401
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        timeout = httpx2.Timeout(self.timeout, connect=_CONNECT_TIMEOUT_SECONDS)
        try:
            async with (
                asyncio.timeout(self.timeout),  # the client's limit is one for each piece
                httpx2.AsyncClient(timeout=timeout, headers=headers, verify=tls_context()) as client,
                client.stream("POST", f"{self.url.rstrip('/')}/{path}", **content) as response,
            ):
                return await _read(response)
        except TimeoutError:
            raise VoiceFailed("it took too long") from None
        except httpx2.HTTPError as error:
            raise VoiceFailed("the service for it did not answer", is_transient=True) from error


async def _read(response: Response) -> bytes:
    """Return the whole answer, up to a limit. Raises VoiceFailed if it is an error."""
    status = response.status_code
    if status != HTTPStatus.OK:
        is_transient = status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR
        raise VoiceFailed(f"the service for it answered with status {status}", is_transient=is_transient)
    answer = bytearray()
    async for piece in response.aiter_bytes():
        answer += piece
        if len(answer) > MAX_RECORDING_BYTES:
            raise VoiceFailed("the service for it sent too much")
    return bytes(answer)
