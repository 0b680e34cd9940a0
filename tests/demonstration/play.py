"""The conversation: Alice on Telegram and on Slack with the small model, scene by scene. A scene checks itself."""

import re
import subprocess
from array import array
from collections.abc import Sequence

from palaver.model.audio import recording_seconds
from palaver.model.tools import ASK_USER
from tests.demonstration.calls import PAINT, REMEMBER, SEND_FILE, Json
from tests.demonstration.model import SEES
from tests.demonstration.picture import COLOURS, circle
from tests.demonstration.stage import Stage, recording
from tests.engine.gateway import until

__all__ = ["SCENES", "ask_and_paint", "link", "listen_and_speak", "remember", "see"]

_SPOKEN = "What is the capital of Spain?"
_TRANSCRIBED = "[Transcribed from a voice message]"
_PICTURE = circle((120, 40, 160))
_QUIET = 1000
"""Samples of 16 bits below this are no speech."""


async def link(stage: Stage) -> None:
    """Alice links her accounts on Telegram and Slack."""
    stage.say(stage.telegram, "/link")
    code = re.findall("code is ([A-Z0-9]{8})", await stage.hears(stage.telegram, "Your code"))[0]
    stage.say(stage.slack, f"!link {code}")
    await stage.hears(stage.telegram, "Your code was entered")
    stage.say(stage.slack, "!link yes")
    await stage.hears(stage.slack, "You agreed")
    stage.say(stage.telegram, "/link yes")
    await stage.hears(stage.slack, "one person now")


async def remember(stage: Stage) -> None:
    """What she says on Telegram is known on Slack, in a new conversation."""
    fact = "Please remember that my favorite color is green."
    stage.say(stage.telegram, fact, REMEMBER)
    await stage.answered(stage.telegram)
    stage.say(stage.slack, "!new")
    await stage.hears(stage.slack)
    stage.say(stage.slack, "What is my favorite color?")
    await stage.answered(stage.slack)
    (note,) = [written.strip() for name, written in stage.models.written if name == REMEMBER]
    section, *said = [message["content"] for message in stage.models.asked[-1]["messages"]]
    assert "Platform: Slack" in section
    assert note in section
    assert not any(fact in str(each) for each in said)


async def ask_and_paint(stage: Stage) -> None:
    """Asked on Telegram, she answers on Slack; then she approves the tool, sees it at work, and gets the picture."""
    before = len(stage.telegram.uploads)
    stage.say(stage.telegram, "Paint a circle. Ask me for the color.", ASK_USER, PAINT, SEND_FILE)
    question = await stage.hears(stage.telegram, "1. ")
    chosen = re.findall(r"^1\. (.+)$", question, re.MULTILINE)[0]
    assert f"[{chosen}]" in question
    stage.say(stage.slack, "!answer 1")
    await stage.hears(stage.telegram, f"May I use {PAINT}?")
    assert stage.models.asked[-1]["messages"][-1]["content"] == chosen
    stage.note(stage.telegram, "Alice", "(presses Approve)")
    stage.telegram.press("Approve")
    stage.note(stage.telegram, "Palaver", await _progress(stage))
    stage.dry.touch()
    await stage.answered(stage.telegram)
    await until(lambda: len(stage.telegram.uploads) > before)
    stage.read()
    colour = next(written.strip() for name, written in stage.models.written if name == PAINT)
    assert stage.telegram.uploads[-1][::2] == ("photo", circle(COLOURS[colour]))
    assert not _at_work(stage)


def _at_work(stage: Stage) -> list[str]:
    return [text for text in stage.telegram.shown() if text.startswith(f"Using {PAINT} (")]


async def _progress(stage: Stage) -> str:
    await until(lambda: bool(_at_work(stage)))
    return _at_work(stage)[-1]


async def listen_and_speak(stage: Stage) -> None:
    """She sends a voice message, and hears the answer."""
    stage.say(stage.telegram, "/voice on")
    await stage.hears(stage.telegram, "spoken")
    stage.note(stage.telegram, "Alice", f"(voice message) {_SPOKEN}")
    before = len(stage.telegram.uploads)
    stage.telegram.send_voice(recording(_SPOKEN))
    answer = await stage.answered(stage.telegram)
    await until(lambda: len(stage.telegram.uploads) > before)
    stage.read()
    heard = next(line for line in _last_words(stage.models.asked[-1]).splitlines() if _TRANSCRIBED in line)
    stage.note(stage.telegram, "Transcript", heard[heard.index(_TRANSCRIBED) :])
    assert len(_words(heard) & _words(_SPOKEN)) > len(_words(_SPOKEN)) / 2, (
        heard
    )  # what it hears depends on the processor
    kind, _, spoken = stage.telegram.uploads[-1]
    assert kind == "voice"
    assert 0.1 * len(answer.split()) < recording_seconds(spoken) < 2 + len(answer.split())
    assert max(_samples(spoken)) > _QUIET
    stage.say(stage.telegram, "/voice off")
    await stage.hears(stage.telegram)


def _words(text: str) -> set[str]:
    return set(re.findall("[a-z]+", text.lower()))


def _last_words(asked: Json) -> str:
    return str(asked["messages"][-1]["content"])


def _samples(spoken: bytes) -> Sequence[int]:
    read = ["ffmpeg", "-v", "error", "-i", "-", "-f", "s16le", "-"]
    return array("h", subprocess.run(read, check=True, input=spoken, stdout=subprocess.PIPE).stdout)


async def see(stage: Stage) -> None:
    """The small model learns that there is a picture which it cannot see; one that sees gets it."""
    stage.note(stage.telegram, "Alice", "(photo) What is this?")
    stage.telegram.send_photo(_PICTURE, "What is this?")
    await stage.answered(stage.telegram)
    assert "image input is not supported" in stage.models.refused[-1]
    assert "is not shown to you: this model cannot see images" in _last_words(stage.models.asked[-1])
    stage.say(stage.telegram, f"/model {SEES}")
    await stage.hears(stage.telegram)
    stage.say(stage.telegram, "And now?")
    await stage.answered(stage.telegram)
    assert _PICTURE in stage.models.images


SCENES = (link, remember, ask_and_paint, listen_and_speak, see)
