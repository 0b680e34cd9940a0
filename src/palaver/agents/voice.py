"""Speech by a program on this machine: it reads the one from its standard input and writes the other."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from palaver.agents.process import end_group, home_folder
from palaver.model.attachment import UNKNOWN_TYPE, NewFile, detect_media_type
from palaver.protocols.voice import VoiceFailed, VoiceFormat

MAX_RECORDING_BYTES = 20_000_000
_CHUNK_BYTES = 1 << 16
_HEAD_BYTES = 16
_ENDINGS = {"audio/ogg": "ogg", "audio/mpeg": "mp3", "audio/wav": "wav", "audio/flac": "flac"}


@dataclass(frozen=True, kw_only=True)
class VoiceCommand:
    """Transcribes and speaks, depending on what the command does."""

    command: tuple[str, ...]
    environ: Mapping[str, str]
    timeout: float

    async def transcribe(self, recording: NewFile) -> str:
        return (await self._run(recording.content)).decode("utf-8", "replace").strip()

    async def speak(self, text: str, format: VoiceFormat) -> NewFile:  # noqa: A002, ARG002 - it has its own
        return recording_of(await self._run(text.encode("utf-8", "replace")))

    async def _run(self, given: bytes) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=dict(self.environ),
                cwd=home_folder(),
                start_new_session=True,
            )
        except OSError as error:
            raise VoiceFailed("the program for it does not start") from error
        try:
            async with asyncio.timeout(self.timeout):
                said, code = await _exchange(process, given)
        except TimeoutError:
            raise VoiceFailed("it took too long") from None
        finally:
            await end_group(process)
        if code:
            raise VoiceFailed("the program for it failed")
        return said


async def _exchange(process: asyncio.subprocess.Process, given: bytes) -> tuple[bytes, int]:
    to, said_by = cast("asyncio.StreamWriter", process.stdin), cast("asyncio.StreamReader", process.stdout)

    async def give(pipe: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            pipe.write(given)
            await pipe.drain()
        pipe.close()

    giving, said = asyncio.create_task(give(to)), bytearray()
    try:
        while len(said) <= MAX_RECORDING_BYTES and (piece := await said_by.read(_CHUNK_BYTES)):
            said += piece
        if len(said) > MAX_RECORDING_BYTES:
            raise VoiceFailed("the program for it wrote too much")
        return bytes(said), await process.wait()
    finally:
        giving.cancel()


def recording_of(content: bytes) -> NewFile:
    """Return a recording with the type that its first bytes show. Raises VoiceFailed if it is none."""
    kind = detect_media_type(content[:_HEAD_BYTES], UNKNOWN_TYPE)
    if kind == UNKNOWN_TYPE and content[:1] == b"\xff" and content[1:2] > b"\xe0":
        kind = "audio/mpeg"  # a frame without a tag before it
    if not kind.startswith("audio/"):
        raise VoiceFailed("what came is no recording")
    return NewFile(f"voice.{_ENDINGS.get(kind, 'audio')}", content, kind)
