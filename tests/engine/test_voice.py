"""Voice messages: transcribed once before the turn, spoken where somebody wants it, and never lost."""

import asyncio
import os
import struct
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from palaver.agents import voice_http
from palaver.agents.voice import VoiceCommand
from palaver.agents.voice_http import VoiceServer
from palaver.model.attachment import Attachment
from palaver.model.audio import recording_seconds
from palaver.model.key import ScopedSetting
from palaver.model.label import Label
from palaver.model.quotas import Quota, QuotaKind, QuotaRules
from palaver.model.revision import RevisionPolicy
from palaver.model.source import Source, Trust
from palaver.model.transcript import Role, ToolCall
from palaver.model.turn import Inbound, Revision
from palaver.protocols.agent import Agent, ApprovalNeeded, Event, Final, Request
from palaver.protocols.voice import Voice, VoiceFailed, VoiceFormat
from palaver.store.conversations.blob_store import BlobStore
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform
from palaver.testkit.updates import File, Update
from palaver.tools.voice import VoiceTools
from tests.agents.fake_voice import VoiceService, opus, voicing, wave
from tests.engine.agents import Condensing, Scripted, Slow
from tests.engine.gateway import Bench, running, until
from tests.engine.test_tools import use

HEARD = "[Transcribed from a voice message] buy milk"


def recording(content: bytes = opus()) -> File:
    return File(name="voice.ogg", media_type="audio/ogg", content=content)


def server(service: VoiceService, **given: Any) -> VoiceServer:
    return VoiceServer(url=service.url, model="small", key="canary", **given)


def program(code: str, timeout: float = 30.0) -> VoiceCommand:
    return VoiceCommand(command=(sys.executable, "-c", code), environ=dict(os.environ), timeout=timeout)


class Telegraph(FakeAdapter):
    def voice_format(self) -> VoiceFormat:
        return VoiceFormat.OPUS


async def test_a_voice_message_is_transcribed_before_its_turn_and_counted(tmp_path: Path) -> None:
    shelf = BlobStore(tmp_path / "files")
    async with voicing() as service:
        voice = Voice(transcriber=server(service, language="en"), minute_price=0.006)
        async with running(tmp_path / "p.db", shelf=shelf, voice=voice) as here:
            alice = here.world.person("alice")
            chat = here.world.dm(alice)
            await chat.say(alice, "listen", files=(recording(opus(30)),))
            await chat.hears(f"You said: listen\n{HEARD}")
            await here.settled()
            (sent,) = service.transcribed
            assert sent["file"] == opus(30)
            assert (sent["model"], sent["language"], sent["filename"]) == (b"small", b"en", b"voice.ogg")
            assert service.keys == ["Bearer canary"]
            said = next(entry for entry in await here.entries() if entry.role is Role.USER)
            assert said.text == f"listen\n{HEARD}"
            assert [file.media_type for file in said.files] == ["audio/ogg"]
            assert shelf.place(said.files[0].sha256 or "")
            assert await here.rows("SELECT cost_micros FROM turns") == [(3_000,)]


async def test_a_crash_does_not_transcribe_twice_and_waiting_blocks_nobody(tmp_path: Path) -> None:
    world, shelf, go = FakePlatform(), BlobStore(tmp_path / "files"), asyncio.Event()
    alice, bob = world.person("alice"), world.person("bob")
    chat, other = world.dm(alice), world.dm(bob)
    async with voicing(holds=go) as service:
        voice = Voice(transcriber=server(service))
        async with running(tmp_path / "p.db", world, shelf=shelf, voice=voice):
            await chat.say(alice, "", files=(recording(),))
            await until(lambda: len(service.transcribed) == 1)
            await other.say(bob, "hello")
            await other.hears("You said: hello")
        go.set()
        async with running(tmp_path / "p.db", world, shelf=shelf, voice=voice, worker="w2") as here:
            await chat.hears(f"You said: {HEARD}")
            await here.settled()
            asked = len(service.transcribed)
        async with running(tmp_path / "p.db", world, shelf=shelf, voice=voice, worker="w3") as here:
            await chat.say(alice, "/retry")
            await chat.hears(f"You said: {HEARD}", times=2)
            await here.settled()
            assert len(service.transcribed) == asked == 2


@asynccontextmanager
async def transcribing(folder: Path, agent: Agent, **changed: Any) -> AsyncGenerator[Bench]:
    """A gateway at which half a minute costs 3,000 millionths."""
    async with voicing() as service:
        voice = Voice(transcriber=server(service), minute_price=0.006)
        shelf = BlobStore(folder / "files")
        async with running(folder / "p.db", agent=agent, shelf=shelf, voice=voice, **changed) as here:
            yield here


async def charged(here: Bench) -> tuple[int, int]:
    await here.settled()
    return (await here.rows("SELECT sum(cost_micros), (SELECT sum(cost_micros) FROM sessions) FROM turns"))[0]


async def test_a_transcription_is_charged_once_if_the_turn_asks_and_goes_on(tmp_path: Path) -> None:
    async def asks(request: Request) -> AsyncGenerator[Event]:
        if request.approvals:
            yield Final(text="thank you")
        else:
            yield ApprovalNeeded(call=ToolCall(id="c", name="look"), question="May I?")

    async with transcribing(tmp_path, Scripted(asks)) as here:
        chat = here.world.dm(alice := here.world.person("alice"))
        await chat.say(alice, "listen", files=(recording(opus(30)),))
        await chat.hears("Reply /approve or /deny.")
        await chat.say(alice, "/approve")
        await chat.hears("thank you")
        assert await charged(here) == (3_000, 3_000)


async def test_a_transcription_is_charged_once_if_a_summary_follows(tmp_path: Path) -> None:
    agent = Condensing()
    agent.go.set()
    async with transcribing(tmp_path, agent, message_limit=4) as here:
        chat = here.world.dm(alice := here.world.person("alice"))
        for topic in ("one", "two"):
            await chat.say(alice, f"{topic} {'and so on ' * 20}")
            await chat.hears(f"answer to: {topic}")
        await chat.say(alice, "listen", files=(recording(opus(30)),))
        await until(lambda: len(agent.passages) == 1)
        assert await charged(here) == (3_000, 3_000)


async def test_what_joins_a_running_turn_is_charged_with_its_transcription(tmp_path: Path) -> None:
    agent = Slow(tool=True)
    async with transcribing(tmp_path, agent) as here:
        chat = here.world.dm(alice := here.world.person("alice"))
        await chat.say(alice, "wait")
        await until(lambda: len(agent.requests) == 1)
        for caption in ("listen", "/steer and this"):
            await chat.say(alice, caption, files=(recording(opus(30)),))
        await until(partial(_waits, here, 2))
        agent.go.set()
        await chat.hears("answer to: listen")
        assert [HEARD in text for text in agent.meanwhile] == [True]
        assert await charged(here) == (6_000, 6_000)


async def _waits(here: Bench, count: int) -> bool:
    return await here.rows("SELECT count(*) FROM inbox WHERE state = 'waiting'") == [(count,)]


async def test_nothing_is_transcribed_over_a_limit(tmp_path: Path) -> None:
    caps = QuotaRules(caps={QuotaKind.PERSON_DAY: Quota(cost_micros=3_000)})
    async with voicing() as service:
        voice = Voice(transcriber=server(service), minute_price=0.006)
        shelf = BlobStore(tmp_path / "files")
        async with running(tmp_path / "p.db", shelf=shelf, voice=voice, caps=caps) as here:
            chat = here.world.dm(alice := here.world.person("alice"))
            await chat.say(alice, "", files=(recording(opus(30)),))
            await chat.hears(HEARD)
            await here.settled()
            await chat.say(alice, "", files=(recording(opus(30)),))
            await until(lambda: len(chat.shown) == 2)
            await here.settled()
            assert len(service.transcribed) == 1
            said = [entry.text for entry in await here.entries() if entry.role is Role.USER]
            assert "could not be transcribed: a usage limit is reached" in said[-1]


@pytest.mark.parametrize(
    ("given", "content", "why", "asked"),
    [
        ({"statuses": [500, 500]}, opus(), "the service for it answered with status 500", 2),
        ({"statuses": [401]}, opus(), "the service for it answered with status 401", 1),
        ({"says": ""}, opus(), "it says nothing", 1),
        ({}, opus(601), "it is longer than 10 minutes", 0),
        ({}, b"OggS" + b"\0" * 700_000, "it is longer than 10 minutes", 0),
    ],
)
async def test_a_failure_leaves_a_sentence_and_the_recording(
    tmp_path: Path, given: dict[str, Any], content: bytes, why: str, asked: int
) -> None:
    async with voicing(**given) as service:
        voice = Voice(transcriber=server(service), max_length=timedelta(minutes=10))
        async with running(tmp_path / "p.db", shelf=BlobStore(tmp_path / "files"), voice=voice) as here:
            alice = here.world.person("alice")
            chat = here.world.dm(alice)
            await chat.say(alice, "", files=(recording(content),))
            await chat.hears(f"[A voice message that could not be transcribed: {why}. Tell the person so.]")
            assert len(service.transcribed) == asked
            said = next(entry for entry in await here.entries() if entry.role is Role.USER)
            assert said.files[0].sha256
    async with running(tmp_path / "q.db", shelf=BlobStore(tmp_path / "files"), voice=voice) as here:
        chat = here.world.dm(alice := here.world.person("alice"))
        await chat.say(alice, "", files=(recording(),))
        await chat.hears("could not be transcribed: the service for it did not answer")


async def test_a_service_that_fails_once_is_asked_again(tmp_path: Path) -> None:
    async with voicing(statuses=[503]) as service:
        voice = Voice(transcriber=server(service))
        async with running(tmp_path / "p.db", shelf=BlobStore(tmp_path / "files"), voice=voice) as here:
            chat = here.world.dm(alice := here.world.person("alice"))
            await chat.say(alice, "", files=(recording(),))
            await chat.hears(HEARD)


async def test_answers_are_spoken_where_somebody_wants_it(tmp_path: Path) -> None:
    world, shelf = FakePlatform(), BlobStore(tmp_path / "files")
    async with voicing(statuses=[200, 200, 500]) as service:
        voice = Voice(speaker=server(service, voice="nova"), max_characters=60, character_price=15.0)
        adapters = (Telegraph(world),)
        async with running(
            tmp_path / "p.db",
            world,
            shelf=shelf,
            voice=voice,
            adapters=adapters,
            toolsets=lambda _: (VoiceTools(),),
        ) as here:
            chat = world.dm(alice := world.person("alice"))
            await chat.say(alice, "/voice")
            await chat.hears("Answers in this chat are text.")
            await chat.say(alice, "one")
            await chat.hears("You said: one")
            await chat.say(alice, "/voice on")
            await chat.hears("Answers in this chat are also spoken. /voice off ends it.")
            await chat.say(alice, "/new")
            await chat.say(alice, "two")
            await chat.hears("You said: two")
            await here.settled()
            asked = {"model": "small", "input": "You said: two", "voice": "nova", "response_format": "opus"}
            assert service.spoken == [asked]
            (sent,) = [file for message in chat.shown for file in message.files]
            assert (sent.name, sent.media_type, sent.content) == ("voice.ogg", "audio/ogg", opus())
            assert (await here.rows("SELECT cost_micros FROM turns ORDER BY cost_micros DESC"))[0] == (195,)
            await chat.say(alice, "x" * 100)
            await chat.hears("x" * 100)
            await chat.say(alice, "/voice off")
            await chat.say(alice, "three")
            await chat.hears("You said: three")
            await chat.say(alice, use("send_voice", text="aloud"))
            await chat.hears("The voice message is queued.")
            await chat.say(alice, use("send_voice", text="again"))
            await chat.hears("The message was not spoken: the service for it answered with status 500.")
            await here.settled()
            assert [each["input"] for each in service.spoken] == ["You said: two", "aloud", "again"]
            assert len([file for message in chat.shown for file in message.files]) == 2


async def test_an_answer_that_cannot_be_spoken_is_still_given(tmp_path: Path) -> None:
    voice = Voice(speaker=program("raise SystemExit(1)"))
    async with running(tmp_path / "p.db", shelf=BlobStore(tmp_path / "files"), voice=voice) as here:
        chat = here.world.dm(alice := here.world.person("alice"))
        await chat.say(alice, "/voice on")
        await chat.hears("also spoken")
        await chat.say(alice, "one")
        await chat.hears("You said: one")
        await here.settled()
        assert not [file for message in chat.shown for file in message.files]
    async with running(tmp_path / "q.db") as here:
        chat = here.world.dm(alice := here.world.person("alice"))
        await chat.say(alice, "/voice on")
        await chat.hears("This gateway does not speak.")


async def test_programs_transcribe_and_speak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hears = program("import sys; print(f'it has {len(sys.stdin.buffer.read())} bytes')")
    says = program(f"import sys; sys.stdin.read(); sys.stdout.buffer.write({wave()!r})")
    voice = Voice(transcriber=hears, speaker=says)
    async with running(tmp_path / "p.db", shelf=BlobStore(tmp_path / "files"), voice=voice) as here:
        chat = here.world.dm(alice := here.world.person("alice"))
        await chat.say(alice, "/voice on")
        await chat.hears("also spoken")
        await chat.say(alice, "", files=(recording(wave(2)),))
        await chat.hears(f"[Transcribed from a voice message] it has {len(wave(2))} bytes")
        await here.settled()
        (sent,) = [file for message in chat.shown for file in message.files]
        assert (sent.name, sent.media_type, sent.content) == ("voice.wav", "audio/wav", wave())
    voice = Voice(transcriber=program("print('x' * 1_000_000)"))
    async with running(tmp_path / "q.db", shelf=BlobStore(tmp_path / "more"), voice=voice) as here:
        chat = here.world.dm(alice := here.world.person("alice"))
        await chat.say(alice, "", files=(recording(),))
        await chat.hears("xxx")
        said = next(entry for entry in await here.entries() if entry.role is Role.USER)
        assert said.text.count("x") == 100_000
    for code, why in (("import time; time.sleep(60)", "took too long"), ("print('no sound')", "no recording")):
        with pytest.raises(VoiceFailed, match=why):
            await program(code, timeout=2.0).speak("x", VoiceFormat.OPUS)
    endless = "import sys\nwhile True: sys.stdout.buffer.write(bytes(1 << 20))"
    monkeypatch.setattr("palaver.agents.voice.MAX_RECORDING_BYTES", 1 << 20)
    with pytest.raises(VoiceFailed, match="wrote too much"):
        await asyncio.wait_for(program(endless, timeout=30.0).speak("x", VoiceFormat.OPUS), 60)
    with pytest.raises(VoiceFailed, match="does not start"):
        await VoiceCommand(command=("/nowhere",), environ={}, timeout=1.0).speak("x", VoiceFormat.OPUS)


async def test_an_answer_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pause: float) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):  # too late for a machine that is busy
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n")
            while True:
                writer.write(b"1\r\nx\r\n")
                await writer.drain()
                await asyncio.sleep(pause)
        with suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()
    monkeypatch.setattr(voice_http, "MAX_RECORDING_BYTES", 1_000)
    for pause, timeout, why in ((0.0, 60.0, "sent too much"), (0.1, 1.0, "took too long")):
        async with await asyncio.start_server(partial(pour, pause=pause), "127.0.0.1", 0) as listener:
            url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
            with pytest.raises(VoiceFailed, match=why):
                await VoiceServer(url=url, model="small", timeout=timeout).speak("x", VoiceFormat.OPUS)
            await ended.wait()
            ended.clear()


def test_the_length_of_a_recording() -> None:
    assert recording_seconds(wave(2.5)) == 2.5
    assert recording_seconds(opus(90)) == 90
    head = b"\x01vorbis\0\0\0\0\1\x44\xac\0\0"
    vorbis = b"OggS\0\2" + b"\0" * 20 + bytes((1, len(head))) + head + opus(1)[47:]
    assert recording_seconds(vorbis) == pytest.approx(48_000 / 44_100)
    assert recording_seconds(opus(60) + opus(30)) == 90, "one behind the other"
    # What a page says about its position is not believed against its size.
    page = b"OggS" + b"\0" * 22 + b"\xff" + b"\xff" * 255 + b"x" * 255 * 255
    assert recording_seconds(opus(1)[:47] + page * 100 + opus(1)[47:]) == pytest.approx(102, abs=1)
    assert recording_seconds(opus(600) + b"OggS" + b"\0" * 9_000) > 9, "what follows is no page"
    for unknown in (b"ID3" + b"x" * 9_997, b"OggS" + b"\0" * 9_996, b"RIFF" + b"\0" * 9_996):
        assert recording_seconds(unknown) == 10.0
    for cut in range(60):
        assert recording_seconds(opus()[:cut]) >= 0
        assert recording_seconds(wave()[:cut]) >= 0


def element(name: str, content: bytes, size: bytes | None = None) -> bytes:
    """Return an element of Matroska."""
    return bytes.fromhex(name) + (size or (len(content) | 1 << 28).to_bytes(4, "big")) + content


def box(name: bytes, content: bytes) -> bytes:
    return (8 + len(content)).to_bytes(4, "big") + name + content


def webm(seconds: int, *, info: bytes = b"") -> bytes:
    """Return what a browser records: sizes and the length are unknown while it is written."""
    unknown = b"\x01" + b"\xff" * 7
    clusters = b"".join(
        element("1F43B675", element("E7", (1000 * at).to_bytes(3, "big")), unknown)
        + element("A3", b"\x81" + (980).to_bytes(2, "big") + b"\x80" + bytes(4_000))
        for at in range(seconds)
    )
    head = element("1A45DFA3", element("4282", b"webm"))
    return head + element(
        "18538067", element("1549A966", element("2AD7B1", b"\x0f\x42\x40") + info) + clusters, unknown
    )


def test_the_length_of_an_mp3_is_that_of_its_frames() -> None:
    frame = b"\xff\xfb\x90\x00" + bytes(413)  # 128 kbit/s at 44.1 kHz
    low = b"\xff\xf3\x40\xc0" + bytes(100)  # 32 kbit/s at 22.05 kHz
    padded = b"\xff\xfb\x92\x00" + bytes(414)
    for content in (frame * 1531, low * 1531, padded * 1531):
        assert recording_seconds(content) == pytest.approx(40, abs=0.01)
    cover = b"ID3\x04\0\0" + bytes((0, 3, 13, 64)) + bytes(50_880)
    assert recording_seconds(cover + frame * 1531 + b"TAG" + bytes(125)) == pytest.approx(40, abs=0.01)
    assert recording_seconds(frame + bytes(9_000)) == pytest.approx(9.03, abs=0.01), "what follows is no frame"
    for odd in (
        b"\xff\xfb\xf0\x00",
        b"\xff\xfb\x00\x00",
        b"\xff\xfb\x9c\x00",
        b"\xff\xe9\x90\x00",
        b"\xff\xfd\x90\x00",
    ):
        assert recording_seconds(odd + bytes(4_996)) == 5.0, "no frame of an MP3"


def test_the_length_of_a_flac_an_m4a_and_a_webm() -> None:
    facts = (44_100 << 44 | 1 << 41 | 15 << 36 | 40 * 44_100).to_bytes(8, "big")
    flac = b"fLaC\x80\0\0\x22" + bytes(10) + facts + bytes(16) + bytes(3_000_000)
    long = b"\1\0\0\0" + bytes(16) + (44_100).to_bytes(4, "big") + (40 * 44_100).to_bytes(8, "big") + bytes(80)
    short = bytes(12) + (1_000).to_bytes(4, "big") + (40_000).to_bytes(4, "big") + bytes(80)
    m4a = [
        box(b"ftyp", b"M4A ") + box(b"mdat", bytes(330_000)) + box(b"moov", box(b"mvhd", each))
        for each in (short, long)
    ]
    for content in (flac, *m4a, webm(40), webm(1, info=element("4489", b"\x47\x1c\x40\x00"))):
        assert recording_seconds(content) == pytest.approx(40, abs=0.1)
    # What a header says is not believed against the size.
    assert recording_seconds(flac[:18] + bytes(8) + flac[26:]) > 3_000, "it says no length"
    tiny = flac[:18] + (44_100 << 44 | 1).to_bytes(8, "big") + flac[26:]
    assert recording_seconds(tiny) > 15
    assert recording_seconds(m4a[0].replace((40_000).to_bytes(4, "big"), (1).to_bytes(4, "big"))) > 5
    assert recording_seconds(webm(9, info=element("4489", b"\x7f\x80\0\0"))) > 30, "infinity is no length"
    assert recording_seconds(webm(1) + b"\xec\x80" * 1_100_000) > 2_000, "too many elements"
    for content in (
        flac[:100],
        m4a[0][330_000:],
        m4a[0][:60],
        webm(1)[:120],
        webm(2, info=element("2AD7B1", b"\xff" * 200)),
    ):
        for cut in range(len(content[:120])):
            assert recording_seconds(content[:cut]) >= 0


def numbers(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def test_the_length_of_an_mp4_that_was_written_while_it_was_recorded() -> None:
    """Its header has none: a phone records so, and a browser. The samples have lengths of their own, or a usual one."""
    track = box(b"tkhd", numbers(0, 0, 0, 1)) + box(b"mdia", box(b"mdhd", numbers(0, 0, 0, 44_100)))
    movie = box(b"mvhd", numbers(0, 0, 0, 1_000, 0)) + box(b"trak", track)
    movie += box(b"mvex", box(b"trex", numbers(0, 1, 1, 1_024)))

    def fragment(head: bytes, run: bytes) -> bytes:
        return box(b"moof", box(b"traf", box(b"tfhd", head) + box(b"trun", run))) + box(b"mdat", bytes(20_000))

    own = numbers(0x301, 400, 0) + numbers(512, 50) * 400
    content = box(b"ftyp", b"M4A ") + box(b"moov", movie)
    content += fragment(numbers(0, 1), numbers(0, 200))
    content += fragment(numbers(0x8, 1, 2_048), numbers(0x200, 100) + bytes(400)) + fragment(numbers(0, 1), own)
    content += fragment(numbers(0x3B, 1, 0, 0, 1, 1_024), numbers(0x1, 200, 0))
    assert recording_seconds(content) == pytest.approx(1_024 * 800 / 44_100)
    for cut in range(400):
        assert recording_seconds(content[:cut]) >= 0


async def test_a_recording_that_is_uploaded_is_transcribed_as_a_voice_message_is(tmp_path: Path) -> None:
    shelf = BlobStore(tmp_path / "files")

    async def content() -> AsyncGenerator[bytes]:
        yield opus(30)

    async with voicing() as service:
        voice = Voice(transcriber=server(service), minute_price=0.006)
        async with running(tmp_path / "p.db", shelf=shelf, voice=voice) as here:
            chat = here.world.dm(alice := here.world.person("alice"))
            kept = await shelf.keep(content(), 1_000)
            upload = Attachment(Label("talk.ogg"), "audio/ogg", kept.size, sha256=kept.sha256)
            source = Source(platform="fake", account="bot", chat_id=chat.id, user_id=alice.id, message_id="up1")
            await here.engine.receive(
                Inbound(source=source, text="listen", at=here.world.clock.now(), files=(upload,)), Trust()
            )
            await chat.hears(f"You said: listen\n{HEARD}")
            await here.settled()
            assert len(service.transcribed) == 1
            assert await here.rows("SELECT cost_micros FROM turns") == [(3_000,)]


async def test_an_edited_caption_keeps_what_the_recording_says(tmp_path: Path) -> None:
    agent = Slow()
    agent.go.set()
    async with voicing() as service:
        voice, shelf = Voice(transcriber=server(service)), BlobStore(tmp_path / "files")
        rerun = ScopedSetting(default=RevisionPolicy.RERUN)
        async with running(tmp_path / "p.db", agent=agent, shelf=shelf, voice=voice, revisions=rerun) as here:
            chat = here.world.dm(alice := here.world.person("alice"))
            said = await chat.say(alice, "for today", files=(recording(),))
            await chat.hears(f"answer to: for today\n{HEARD}")
            await here.settled()
            await chat.edit(alice, said, "for tomorrow")
            await chat.hears(f"answer to: for tomorrow\n{HEARD}")


async def test_nobody_waits_while_the_length_of_a_recording_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def count(content: bytes) -> float:
        threads.append(threading.current_thread())
        return recording_seconds(content)

    monkeypatch.setattr("palaver.engine.voice.recording_seconds", count)
    async with voicing() as service:
        voice, shelf = Voice(transcriber=server(service)), BlobStore(tmp_path / "files")
        async with running(tmp_path / "p.db", shelf=shelf, voice=voice) as here:
            chat = here.world.dm(alice := here.world.person("alice"))
            await chat.say(alice, "", files=(recording(),))
            await chat.hears(HEARD)
    assert threads
    assert threading.current_thread() not in threads


async def test_an_edit_that_comes_with_its_recording_again_is_not_transcribed_again(tmp_path: Path) -> None:
    agent = Slow()
    agent.go.set()
    async with voicing() as service:
        voice, shelf = Voice(transcriber=server(service), minute_price=0.006), BlobStore(tmp_path / "files")
        rerun = ScopedSetting(default=RevisionPolicy.RERUN)
        world = FakePlatform()
        adapters = [_FilesInEdits(world)]
        async with running(
            tmp_path / "p.db", world, adapters=adapters, agent=agent, shelf=shelf, voice=voice, revisions=rerun
        ) as here:
            chat = world.dm(alice := world.person("alice"))
            said = await chat.say(alice, "for today", files=(recording(),))
            await chat.hears(f"answer to: for today\n{HEARD}")
            await here.settled()
            await chat.edit(alice, said, "for tomorrow")
            answer = await chat.hears("answer to: for tomorrow")
            assert answer.text.count(HEARD) == 1
            assert len(service.transcribed) == 1


BREAD = "[Transcribed from a voice message] buy bread"


async def test_a_recording_that_an_edit_replaces_is_transcribed(tmp_path: Path) -> None:
    other = recording(wave())
    for case, policy in (("answered", RevisionPolicy.RERUN), ("noted", RevisionPolicy.NOTE), ("waiting", None)):
        shelf, revisions = BlobStore(tmp_path / case), ScopedSetting(default=policy or RevisionPolicy.NOTE)
        go = asyncio.Event()
        async with voicing(says="buy bread") as service:
            voice = Voice(transcriber=server(service), minute_price=0.006)
            async with running(tmp_path / f"{case}.db", shelf=shelf, voice=voice, revisions=revisions) as here:
                chat = here.world.dm(alice := here.world.person("alice"))
                first = await chat.say(alice, "first", files=(other,))
                await chat.hears(f"You said: first\n{BREAD}")
                service.says, service.holds = "buy milk", go if case == "waiting" else None
                said = await chat.say(alice, "listen", files=(recording(),))
                if case == "waiting":
                    await until(lambda service=service: len(service.transcribed) == 2)
                else:
                    await chat.hears(f"You said: listen\n{HEARD}")
                    await here.settled()
                source = Source(platform="fake", account="bot", chat_id=chat.id, user_id=alice.id, message_id=said.id)
                new = Attachment(Label("voice.ogg"), "audio/ogg", other.size, handle=f"{chat.id}/{first.id}/0")
                edit = Inbound(source=source, text="listen", at=here.world.clock.now(), files=(new,))
                await here.engine.receive(replace(edit, revision=Revision(version="1")), Trust())
                service.says = "buy bread"
                go.set()
                if policy is RevisionPolicy.NOTE:
                    await here.settled()
                    note = (await here.entries())[-1].text
                    assert note.endswith('it now says "listen", with another recording, which is not transcribed')
                    continue
                await chat.hears(f"You said: listen\n{BREAD}")
                await here.settled()
                assert [sent["file"] for sent in service.transcribed] == [other.content, opus(), other.content]
                assert (await here.rows("SELECT sum(cost_micros) FROM turns"))[0][0] == 300, "each is counted"


class _FilesInEdits(FakeAdapter):
    """A platform that sends the files of a message along with each edit of it, as Telegram does."""

    def _inbound(self, update: Update) -> Inbound:
        inbound = super()._inbound(update)
        return replace(inbound, files=inbound.files or self._files) if inbound.revision else self._keep(inbound)

    _files: tuple[Attachment, ...] = ()

    def _keep(self, inbound: Inbound) -> Inbound:
        self._files = inbound.files
        return inbound
