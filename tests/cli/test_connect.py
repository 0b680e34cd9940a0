"""Connect a model from the terminal and in a pipe while the guide answers: with a pasted key, or with what is there."""

import signal
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from palaver.config.model import Config
from palaver.engine.commands import CommandContext
from palaver.gateway.connector import Connector
from palaver.model.access import AccessRole
from palaver.model.key import Scope, derive_key
from palaver.model.platform import Platform
from palaver.model.redact import find_pasted_key
from palaver.model.session import Principal
from palaver.model.source import MAIN, Source
from palaver.model.turn import Inbound, InboxState, Received
from palaver.platforms.terminal.client import PendingOffer
from palaver.platforms.terminal.wire import Offer
from palaver.settings.agents import EchoAgentConfig, GuideAgentConfig
from tests.agents.fake_provider import Provider, Refuses, Says, provided
from tests.cli.processes import PATIENCE, Place
from tests.cli.test_chat_live import Terminal, terminal

if TYPE_CHECKING:
    from palaver.store.store import Store
    from palaver.web.settings import Settings

KEY = "sk-proj-" + "Xq7" * 20
OTHER = "sk-ant-api03-" + "Zw5" * 20
TERMINAL = Platform(name="terminal", title="Terminal", takes_keys=True)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
GUIDE = "agent: {name: guide}\nweb: {enabled: false}\n"
MODELS = ("whisper-1", "gpt-5-mini", "gpt-5")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    place.configure(GUIDE)
    # Nothing of this machine is found.
    place.variables = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"), "")
    place.variables |= {"PALAVER_OFFERS": "false"}
    yield place
    place.close()


@pytest.fixture
def openai(place: Place) -> Iterator[Provider]:
    with provided(models=MODELS) as provider:
        place.variables["OPENAI_BASE_URL"] = provider.openai
        yield provider


def files_with(folder: Path, words: str) -> list[str]:
    """The files below a folder that contain these words, whatever they are."""
    files = [each for each in folder.rglob("*") if each.is_file()]
    assert files
    return sorted(str(each.relative_to(folder)) for each in files if words.encode() in each.read_bytes())


def test_a_pasted_key_connects_its_provider_and_is_nowhere_but_in_its_file(
    place: Place, openai: Provider, tmp_path: Path
) -> None:
    openai.then(Says(text="yes"), Says(text="Hello from the model."))
    with terminal(place) as here:
        here.types(f"here is my key: {KEY}\r")
        here.shows("openai:gpt-5-mini answers from now on.")
        here.types("and who are you?\r")
        here.shows("Hello from the model.")
        assert set(openai.keys) == {f"Bearer {KEY}"}
        assert openai.requests[-1]["model"] == "gpt-5-mini"
        assert KEY not in str(openai.requests)
        here.types("\x1b[A")  # the question, in the history
        here.types("\x1b[A")
        here.shows("key: [redacted: openai key]")
        here.types("\x03")
        assert files_with(tmp_path, KEY) == ["keys/openai"]
        assert here.ends() == 0
    assert stat.S_IMODE((tmp_path / "keys/openai").stat().st_mode) == 0o600
    assert "key_file: keys/openai" in (tmp_path / "config.yaml").read_text()
    assert place.run("backup", "-o", str(tmp_path / "backup.tar")).returncode == 0
    assert files_with(tmp_path, KEY) == ["keys/openai"]
    assert place.run("chat", "-m", "again").stdout.strip().startswith("answer ")


def test_setup_in_another_terminal_and_a_hangup_by_hand_reach_the_running_gateway(
    place: Place, openai: Provider
) -> None:
    """Only when its terminal is closed does a hang-up end the conversation."""
    place.variables["MY_KEY"] = KEY
    model = ("--agent", "model", "--model", "openai:gpt-5-mini", "--base-url", openai.openai, "--key-env", "MY_KEY")
    openai.then(Says(text="yes"), Says(text="Hello from the model."))
    with terminal(place) as here:
        assert "test succeeded. The key stays in MY_KEY, which must be set where Palaver runs. The running gateway" in (
            place.run("setup", *model, "--yes").stdout
        )
        here.types("and who are you?\r")
        here.shows("Hello from the model.")
        place.configure(f"nonsense: 1\n{GUIDE}")
        here.process.send_signal(signal.SIGHUP)
        here.shows("The configuration stays as it was:")
        place.configure(GUIDE)
        assert "The running gateway uses it now." in place.run("setup", "--agent", "guide", "--yes").stdout
        here.process.send_signal(signal.SIGHUP)
        here.shows("The configuration was read again.")
        here.closes()
        here.process.wait(PATIENCE)
    assert "No gateway runs here." in place.run("setup", "--agent", "guide", "--yes").stdout


def test_what_was_typed_is_hidden_on_the_screen(place: Place, openai: Provider) -> None:
    openai.then(Refuses(status=401))
    with terminal(place) as here:
        here.types(KEY)
        assert "Xq7Xq7" not in here.shows("•" * len(KEY))
        here.types("\r")
        assert "Xq7Xq7" not in here.shows("does not answer")


def test_a_refused_key_is_not_kept_and_changes_nothing(place: Place, tmp_path: Path) -> None:
    with provided(Refuses(status=401)) as refusing:
        place.variables["OPENAI_BASE_URL"] = refusing.openai
        with terminal(place) as here:
            here.types(f'export OPENAI_API_KEY="{KEY}"\r')
            here.shows("OpenAI refuses this key. Nothing was saved and nothing has changed.")
            assert files_with(tmp_path, KEY) == []
    assert (tmp_path / "config.yaml").read_text() == GUIDE
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize(
    ("said", "asks"),
    [
        (f"{KEY} {OTHER}", "several keys"),
        (f"key: {KEY[:18]}", "a part of a key of OpenAI"),
        (f"{KEY} " + "and more words " * 20, "inside a longer text"),
        ("/connect openai (key received)", "The key is gone"),  # as after a crash
    ],
)
def test_what_is_not_clear_is_asked_and_not_stored(
    place: Place, openai: Provider, tmp_path: Path, said: str, asks: str
) -> None:
    done = place.run("chat", says=f"{said}\n")
    assert asks in done.stdout
    assert openai.keys == []
    assert files_with(tmp_path, KEY[:18]) == []


def test_a_key_in_the_environment_is_offered_and_named_in_the_configuration(
    place: Place, openai: Provider, tmp_path: Path
) -> None:
    place.variables |= {"OPENAI_API_KEY": KEY, "PALAVER_OFFERS": "true", "OLLAMA_HOST": "127.0.0.1:9"}
    openai.then(Says(text="yes"), Says(text="Hello from the model."))
    here = Terminal(place)
    try:
        here.shows("Found OPENAI_API_KEY.")
        here.shows("Use it? [Y/n]")
        assert openai.heads == []
        here.types("\r")
        here.shows("openai:gpt-5-mini answers from now on.")
        here.types("hello\r")
        here.shows("Hello from the model.")
    finally:
        here.close()
    assert 'key: "${OPENAI_API_KEY}"' in (tmp_path / "config.yaml").read_text()
    assert files_with(tmp_path, KEY) == []


def test_a_line_that_does_not_answer_an_offer_says_how_to_use_it_later() -> None:
    pending = PendingOffer()
    pending.made(Offer(found="Found Ollama.", accept="/connect Ollama", decline="/connect no"))
    assert (pending.read("hello", default=True), pending.unanswered) == ("hello", "/connect Ollama")
    assert (pending.read("y", default=True), pending.unanswered) == ("y", "")


async def test_a_key_that_comes_after_another_has_worked_is_said_to_be_unused(tmp_path: Path) -> None:
    facts = {"data_dir": tmp_path, "store": "p.db"}
    configs = [Config.model_validate({**facts, "agent": GuideAgentConfig()})]
    connector = Connector(cast("Store", None), cast("Settings", object()), lambda: configs[-1])
    source = Source(platform="terminal", chat_id="main", user_id="owner", message_id="2")
    typed, key = Inbound(source=source, text=KEY, at=NOON), find_pasted_key(KEY)
    assert key is not None
    said = connector.keys.take_in(typed, key, TERMINAL, AccessRole.OWNER, MAIN)
    assert said.text == "/connect openai (key received)"
    configs.append(Config.model_validate({**facts, "agent": EchoAgentConfig()}))
    received = Received(
        number=1, key=derive_key(source, Scope()), inbound=said, state=InboxState.WAITING, received=NOON
    )
    context = CommandContext(received=received, principal=Principal.operator(), now=NOON)
    work = iter(await connector.connect("openai (key received)", context))
    with pytest.raises(StopIteration) as done:
        next(work)
    answer = str(done.value.value)
    assert answer.startswith("The agent echo answers already. This key was neither tried nor stored.")


def test_no_is_remembered_and_the_way_back_is_named(place: Place, openai: Provider) -> None:
    place.variables |= {"OPENAI_API_KEY": KEY, "PALAVER_OFFERS": "true", "OLLAMA_HOST": "127.0.0.1:9"}
    here = Terminal(place)
    try:
        here.shows("Use it? [Y/n]")
        here.types("n\r")
        here.shows("To use it later: /connect OPENAI_API_KEY.")
        assert here.ends() == 0
    finally:
        here.close()
    assert openai.heads == []
    done = place.run("chat", says="/connect OPENAI_API_KEY\nhello\n")
    assert "Found" not in done.stderr
    assert done.stdout.splitlines()[-1].startswith("answer ")


@pytest.mark.parametrize("way", ["a yes in the pipe", "an option"])
def test_a_pipe_uses_what_is_found_after_a_yes_alone(place: Place, tmp_path: Path, way: str) -> None:
    with provided(models=("nomic-embed-text", "llama3.2")) as ollama:
        place.variables |= {"PALAVER_OFFERS": "true", "OLLAMA_HOST": f"127.0.0.1:{ollama.port}"}
        done = place.run("chat", says="hello\n")
        assert "Found Ollama on this machine, with llama3.2." in done.stderr
        assert "answer" not in done.stdout
        assert ollama.requests[1:] == []
        done = (
            place.run("chat", "--yes", says="hello\n") if way == "an option" else place.run("chat", says="yes\nhello\n")
        )
        assert "openai:llama3.2 answers from now on." in done.stdout
        assert done.stdout.splitlines()[-1].startswith("answer ")
        assert ollama.requests[-1]["model"] == "llama3.2"
    assert f'base_url: "http://127.0.0.1:{ollama.port}/v1"' in (tmp_path / "config.yaml").read_text()
