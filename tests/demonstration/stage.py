"""A whole gateway between the small model and two platforms, and what is said on them."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from palaver.config.loader import load
from palaver.db.transaction import Statements, transaction
from palaver.gateway.gateway import Gateway
from palaver.model.session import Principal
from palaver.model.transcript import Entry
from palaver.store.opening import open_store
from tests.demonstration.model import SEES, SMALL, ModelServer
from tests.demonstration.phones import Phone, SlackPhone, TelegramPhone
from tests.engine.gateway import until
from tests.platforms.slack.fakes import ALICE as SLACK_ALICE
from tests.platforms.slack.server import serving as serving_slack
from tests.platforms.slack.world import APP_TOKEN, BOT_TOKEN
from tests.platforms.slack.world import World as Slack
from tests.platforms.telegram.fakes import ALICE as TELEGRAM_ALICE
from tests.platforms.telegram.server import serving as serving_telegram
from tests.platforms.telegram.world import TOKEN
from tests.platforms.telegram.world import World as Telegram

__all__ = ["Line", "Stage", "documented_voice", "entries", "home", "recording", "staged"]

_ROOT = Path(__file__).parents[2]
_PATIENCE = 150.0
_ALICE_SPEAKS = ("espeak-ng", "-v", "en-us+m3", "-s", "140", "--stdout")
_TO_OPUS = ("ffmpeg", "-v", "error", "-i", "-", "-c:a", "libopus", "-f", "ogg", "-")


@dataclass(frozen=True, kw_only=True)
class Line:
    place: str
    who: str
    text: str


@dataclass(kw_only=True)
class Stage:
    telegram: TelegramPhone
    slack: SlackPhone
    models: ModelServer
    dry: Path
    """The paint is dry when this file is there."""
    lines: list[Line] = field(default_factory=list[Line])
    told: Callable[[Line], None] = lambda _: None
    _read: dict[str, int] = field(default_factory=dict[str, int])
    _answers: int = 0

    def say(self, phone: Phone, text: str, *calls: str) -> None:
        """Alice says something; the model calls these tools before it answers."""
        self.models.calls += calls
        self.note(phone, "Alice", text)
        phone.say(text)

    def note(self, phone: Phone, who: str, text: str) -> None:
        line = Line(place=phone.name, who=who, text=text)
        self.lines.append(line)
        self.told(line)

    async def hears(self, phone: Phone, words: str = "") -> str:
        """Wait for a message that was not read yet, read everything, and return it."""

        def new() -> list[str]:
            return [text for text in phone.shown()[self._read.get(phone.name, 0) :] if words in text]

        await until(lambda: bool(new()), within=_PATIENCE)
        found = new()[0]
        self.read()
        return found

    async def answered(self, phone: Phone) -> str:
        """Wait until the model has answered in its own words, and the phone shows it."""
        await until(lambda: len(self.models.answers) > self._answers, within=_PATIENCE)
        self._answers = len(self.models.answers)
        answer = self.models.answers[-1]
        await until(lambda: any(_letters(answer) in _letters(text) for text in phone.shown()[-2:]), within=_PATIENCE)
        self.read()
        return answer

    def read(self) -> None:
        for phone in (self.telegram, self.slack):
            shown = phone.shown()
            for text in shown[self._read.get(phone.name, 0) :]:
                self.note(phone, "Palaver", text)
            self._read[phone.name] = len(shown)


def _letters(text: str) -> str:
    """Return what no renderer changes."""
    return "".join(filter(str.isalnum, text))


def documented_voice() -> str:
    """Return the configuration of docs/voice.md for programs on this machine."""
    blocks = re.findall(r"```yaml\n(.*?)```", (_ROOT / "docs/voice.md").read_text(), re.DOTALL)
    return next(block for block in blocks if "transcribe.py" in block)


def home(folder: Path) -> Path:
    """Make a home directory as docs/voice.md says, with the packages that are installed here."""
    voice = folder / "voice"
    voice.mkdir(parents=True)
    for part in Path(sys.prefix).iterdir():
        (voice / part.name).symlink_to(part)
    shutil.copy(_ROOT / "docs/examples/voice/transcribe.py", voice)
    return folder


def recording(text: str) -> bytes:
    """Return a voice message of Alice, as Telegram sends it: Ogg Opus."""
    spoken = subprocess.run([*_ALICE_SPEAKS, text], check=True, stdout=subprocess.PIPE).stdout
    return subprocess.run(_TO_OPUS, check=True, input=spoken, stdout=subprocess.PIPE).stdout


@asynccontextmanager
async def staged(folder: Path, models: ModelServer) -> AsyncGenerator[Stage]:
    """Run a gateway with a model on both platforms. HOME must be as docs/voice.md says."""
    async with serving_telegram(Telegram()) as telegram, serving_slack(Slack()) as slack:
        stage = Stage(
            telegram=TelegramPhone(server=telegram), slack=SlackPhone(server=slack), models=models, dry=folder / "dry"
        )
        (folder / "palaver.yaml").write_text(_configuration(stage) + documented_voice())
        environ = {"PALAVER_CONFIG": str(folder / "palaver.yaml"), "PALAVER_HOME": str(folder / "data")}
        gateway = Gateway(load(folder, environ))
        serving = asyncio.create_task(gateway.serve())
        try:
            await until(lambda: bool(slack.links and telegram.methods))
            yield stage
        finally:
            gateway.stop()
            async with asyncio.timeout(60):
                await serving


def _configuration(stage: Stage) -> str:
    studio = {
        "command": sys.executable,
        "args": ["-m", "tests.demonstration.studio"],
        "environment": {"DRY": str(stage.dry), "PYTHONPATH": str(_ROOT)},
    }
    return f"""\
titles: false
acknowledges: false
scope: {{dm: per-person}}
agent:
  name: model
  model: openai:{SMALL}
  models: ["openai:{SEES}"]
  base_url: {stage.models.url}
  context_window: 2000
  temperature: 0
  max_tokens: 24
  instructions: You are a helpful assistant. You answer in one sentence.
platforms:
  telegram: {{accounts: {{helper: {{token: "{TOKEN}", api_url: "{stage.telegram.server.url}"}}}}}}
  slack:
    accounts:
      helper: {{bot_token: {BOT_TOKEN}, app_token: {APP_TOKEN}, api_url: "{stage.slack.server.url}/api"}}
grants:
  - {{platform: telegram, user_id: "{TELEGRAM_ALICE["id"]}", role: owner}}
  - {{platform: slack, user_id: {SLACK_ALICE}, role: owner}}
tools:
  owner: remember, ask_user, send_file, send_voice, studio__*
  servers: {{studio: {json.dumps(studio)}}}
"""


async def entries(folder: Path) -> list[Entry]:
    """Return the entries of a gateway that has ended, conversation by conversation."""
    async with await open_store(str(folder / "data" / "palaver.db")) as store:
        sessions = await store.read(_sessions())
        return [
            entry
            for session in sessions
            for entry in await store.read(store.transcript.load_visible(session, Principal.operator()))
        ]


@transaction
def _sessions() -> Statements[list[str]]:
    return [row[0] for row in (yield "SELECT id FROM sessions ORDER BY no", ())]
