"""Voice messages: transcribe those that come in before their turn, and speak answers where that is wanted."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from palaver.engine import texts
from palaver.engine.context import EngineContext, Resources
from palaver.engine.retry import contain_cancellation, log_error, retry_outage
from palaver.engine.turns.running import RunningTurn
from palaver.model.attachment import Attachment, NewFile
from palaver.model.audio import recording_seconds
from palaver.model.turn import Heard, Usage
from palaver.protocols.agent import Final
from palaver.protocols.capabilities import VoiceMessages, supports
from palaver.protocols.voice import Speaker, Voice, VoiceFailed, VoiceFormat
from palaver.store.conversations import voice_settings

log = logging.getLogger(__name__)

_TRIES = 2
_PAUSE_SECONDS = 1.0
_MILLION = 1_000_000
_MAX_CHARACTERS = 100_000
"""How much of a transcription is kept: more than anybody says in an hour."""


async def transcribe(
    resources: Resources, files: Sequence[Attachment], is_over_quota: Callable[[], Awaitable[bool]]
) -> Heard:
    """Return what is said in stored files that are recordings, or why that is not known."""
    lines, cost = list[str](), 0
    for file in files:
        if file.media_type.startswith("audio/") and resources.voice and resources.voice.transcriber:
            if await is_over_quota():
                found = Heard(text=texts.not_transcribed("a usage limit is reached"))
            else:
                found = await _transcribe_one(resources, resources.voice, file)
            lines.append(found.text)
            cost += found.cost_micros
    return Heard(text="\n".join(lines), cost_micros=cost)


async def _transcribe_one(resources: Resources, voice: Voice, file: Attachment) -> Heard:
    content = await _read(resources, file)
    if content is None:
        return Heard(text=texts.not_transcribed(file.problem or "it is not stored"))
    # In a thread: somebody can make a file of very many small pages.
    seconds, limit = await asyncio.to_thread(recording_seconds, content), voice.max_length.total_seconds()
    if seconds > limit:
        return Heard(text=texts.not_transcribed(f"it is longer than {limit / 60:g} minutes"))
    try:
        said = (await _try(voice, NewFile(file.name.plain(), content, file.media_type)))[:_MAX_CHARACTERS]
    except VoiceFailed as error:
        log.warning("a voice message was not transcribed: %s", error, extra={"action": "voice.not_transcribed"})
        return Heard(text=texts.not_transcribed(str(error)))
    log.info("a voice message was transcribed", extra={"action": "voice.transcribed"})
    cost = round(voice.minute_price * _MILLION * seconds / 60)
    return Heard(text=texts.transcribed(said) if said else texts.not_transcribed("it says nothing"), cost_micros=cost)


async def _read(resources: Resources, file: Attachment) -> bytes | None:
    if resources.blob_store is None:
        return None
    async with resources.blob_store.reading(file.sha256 or "") as path:
        return await asyncio.to_thread(path.read_bytes) if path else None


async def _try(voice: Voice, recording: NewFile) -> str:
    for left in reversed(range(_TRIES)):
        try:
            with contain_cancellation():
                return await voice.transcriber.transcribe(recording) if voice.transcriber else ""
        except VoiceFailed as error:
            if not (error.is_transient and left):
                raise
        except Exception as error:
            log_error(log, "transcription failed", error, {"action": "voice.error"})
            raise VoiceFailed("it failed") from error
        await asyncio.sleep(_PAUSE_SECONDS)
    return ""


async def with_speech(ctx: EngineContext, resources: Resources, running: RunningTurn, answer: Final) -> Final:
    """Return the answer with a recording of it, where the conversation wants that and it is short enough."""
    voice, speaker = resources.voice, resources.voice and resources.voice.speaker
    text = answer.text.strip()
    if voice is None or speaker is None or running.job or not text or not ctx.replies.takes_files(running.source):
        return answer
    if len(text) > voice.max_characters:
        return answer
    is_on = await retry_outage(lambda: ctx.store.read(voice_settings.is_spoken(running.turn.key)))
    if not is_on:
        return answer
    try:
        recording = await speak(ctx, resources, running, speaker, text)
    except VoiceFailed as error:
        log.warning("an answer was not spoken: %s", error, extra={"action": "voice.not_spoken"})
        return answer
    return replace(answer, files=(*answer.files, recording))


async def speak(ctx: EngineContext, resources: Resources, running: RunningTurn, speaker: Speaker, text: str) -> NewFile:
    """Return a recording, and count what it cost. Raises VoiceFailed."""
    voice = resources.voice or Voice()
    adapter = ctx.replies.adapter_for(running.source.platform, running.source.account)
    wanted = adapter.voice_format() if supports(adapter, VoiceMessages) else VoiceFormat.MP3
    try:
        with contain_cancellation():
            recording = await speaker.speak(text, wanted)
    except VoiceFailed:
        raise
    except Exception as error:
        log_error(log, "speech failed", error, {"action": "voice.error"})
        raise VoiceFailed("it failed") from error
    cost = Usage(cost_micros=round(voice.character_price * len(text)))
    running.summary_usage = running.summary_usage.plus(cost) if cost.cost_micros else running.summary_usage
    log.info("an answer was spoken", extra={"action": "voice.spoken", "turn": running.turn.number})
    return recording
