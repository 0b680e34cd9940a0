"""`palaver setup`: three questions at a terminal, or options; the key is seen by nobody."""

import asyncio
import io
import json
import os
import pty
import re
import select
import signal
import stat
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from palaver.agents.local import installed_model
from palaver.cli import model_wizard, prompts
from palaver.cli.main import main
from palaver.config.loader import load
from tests.agents import fake_hub
from tests.agents.fake_provider import Provider, Recorded, Refuses, Says, Step, providing
from tests.cli.processes import PATIENCE
from tests.forkserver import start_module

KEY = "sk-sesame-0123456789abcdef"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PALAVER_CONFIG", str(tmp_path / "config/own.yaml"))
    monkeypatch.setenv("MY_KEY", KEY)
    for name in ("OPENAI_API_KEY", "PALAVER_STORE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "config/own.yaml"


@contextmanager
def provider(*script: Step) -> Generator[Provider]:
    """Beside the command, which has the loop of this thread for itself."""
    ready, over, found = threading.Event(), asyncio.Event(), list[Provider]()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with providing(*script) as served:
            found.append(served)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait(PATIENCE)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def lists(*names: str) -> Recorded:
    return Recorded(body=json.dumps({"data": [{"id": name} for name in names]}))


def model(served: Provider, *more: str) -> list[str]:
    return ["setup", "--agent", "model", "--model", "openai:small", "--base-url", f"{served.url}/v1", *more]


def test_the_guide_needs_no_test_and_the_file_is_made(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["setup", "--agent", "guide", "--timezone", "Europe/Berlin"]) == 0
    assert own.read_text() == "agent:\n  name: guide\ntimezone: Europe/Berlin\n"
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    assert "guide answers from now on" in capsys.readouterr().out
    assert main(["config", "check"]) == 0


@pytest.mark.needs("libgomp.so.1")
def test_a_local_model_is_downloaded_asked_and_answers(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The hub is ours and gives the small model; the real hub is not asked by any test."""
    with fake_hub.served(fake_hub.FakeHub(installed_model().read_bytes())) as hub:
        fetch = ["setup", "--agent", "local", "--model", "qwen3-4b", "--hub", f"{hub.url}/"]
        assert main(fetch) == 2
        assert f"Qwen3-4B-Q4_K_M.gguf: 98 MB, licence apache-2.0, from {hub.url}" in capsys.readouterr().err
        assert main([*fetch, "--yes"]) == 0
        assert "Qwen3-4B-Q4_K_M answers from now on. The test succeeded." in capsys.readouterr().out
        file = own.parents[1] / "home/models/Qwen3-4B-Q4_K_M.gguf"
        assert load(own.parent).agent.facts()["file"] == file
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        before = own.read_text()
        hub.status = 404
        assert main(["setup", "--agent", "local", "--model", "nobody/nothing", "--hub", hub.url, "--yes"]) != 0
        assert "The hub has no model nobody/nothing" in capsys.readouterr().err
        (own.parent / "not.gguf").write_bytes(b"no model")
        assert main(["setup", "--agent", "local", "--model", str(own.parent / "not.gguf"), "--yes"]) == 2
        assert "This is no model file" in capsys.readouterr().err
        assert own.read_text() == before


def test_no_model_is_downloaded_that_nothing_here_could_run(
    own: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_hub.served(fake_hub.FakeHub(b"")) as hub:
        fetch = ["setup", "--agent", "local", "--model", "qwen3-4b", "--hub", f"{hub.url}/", "--yes"]
        monkeypatch.setattr("palaver.agents.local._SHARED_LIBRARIES", ("libnowhere.so.7",))
        assert main(fetch) == 2
        assert "apt-get install libnowhere7" in capsys.readouterr().err
        monkeypatch.setattr("palaver.agents.local.find_spec", dict[str, None]().get)
        assert main(fetch) == 2
        assert "A local model needs xllamacpp, which is not installed." in capsys.readouterr().err
        assert hub.ranges == []
    assert not own.exists()


def test_a_model_is_asked_and_its_key_stays_where_it_is(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.parent.mkdir()
    own.write_text("# mine\nbusy: collect   # as I like it\n")
    with provider(Says(text="Yes.")) as served:
        assert main(model(served, "--key-env", "MY_KEY", "--json")) == 0
        assert served.keys == [f"Bearer {KEY}"]
    said = capsys.readouterr()
    assert json.loads(said.out) == {
        "ok": True,
        "file": str(own),
        "agent": {"name": "model", "model": "openai:small", "base_url": f"{served.url}/v1", "key": "${MY_KEY}"},
        "timezone": None,
        "tested": True,
        "gateway": None,
    }
    assert own.read_text().startswith("# mine\nbusy: collect   # as I like it\nagent:\n  name: model\n")
    assert KEY not in own.read_text() + said.out + said.err
    assert main(["config", "show"]) == 0
    assert KEY not in capsys.readouterr().out


def test_a_key_in_a_file_of_yours_is_used_from_there(own: Path) -> None:
    Path("key").write_text(f"{KEY}\n")
    with provider(Says(text="Yes.")) as served:
        assert main(model(served, "--key-file", "key")) == 0
        assert served.keys == [f"Bearer {KEY}"]
    assert f"key_file: {Path('key').absolute()}" in own.read_text().replace('"', "")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("refusal", [Refuses(status=401, message=f"wrong key {KEY}"), Refuses(status=404)])
def test_where_it_does_not_answer_nothing_is_written(
    own: Path, refusal: Refuses, capsys: pytest.CaptureFixture[str]
) -> None:
    with provider(refusal) as served:
        assert main(model(served, "--key-env", "MY_KEY")) == 1
        said = capsys.readouterr()
        assert "openai:small does not answer: " in said.err
        assert "Nothing was changed" in said.err
        assert KEY not in said.out + said.err
        assert not own.exists()
        assert main(model(served, "--key-env", "MY_KEY", "--no-test")) == 0
    assert own.exists()
    assert main(model(served, "--key-env", "MY_KEY", "--yes")) == 1, "nobody is there any more"
    assert f"nothing listens at 127.0.0.1:{served.port}. Nothing was changed" in capsys.readouterr().err


def test_what_is_there_is_not_replaced_silently(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.parent.mkdir()
    own.write_text("agent: {name: echo, streams: true}\n")
    assert main(["setup", "--agent", "guide"]) == 2
    assert "already sets the agent" in capsys.readouterr().err
    assert own.read_text() == "agent: {name: echo, streams: true}\n"
    assert main(["setup", "--agent", "guide", "--yes"]) == 0
    assert own.read_text() == "agent:\n  name: guide\n"


def test_a_file_with_mistakes_is_left_to_its_author(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.parent.mkdir()
    own.write_text("bussy: queue\n")
    assert main(["setup", "--agent", "guide"]) == 2
    assert "Unknown field 'bussy'" in capsys.readouterr().err
    assert own.read_text() == "bussy: queue\n"


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "There is no terminal"),
        (("--agent", "gpt"), "Unknown agent or model 'gpt'"),
        (("--agent", "model"), "--agent model needs --model"),
        (("--model", "nothing:x", "--no-test"), "Unknown model 'nothing:x'"),
        (("--model", "../../x:y"), "Unknown agent or model"),
        (("--model", "openai:x", "--base-url", "ftp://x"), "Unknown agent or model"),
        (("--model", "openai:x", "--key-env", "NOT_SET"), "There is no environment variable 'NOT_SET'"),
        (("--model", "openai:x", "--key-file", "nowhere"), "nowhere: it is missing."),
        (("--agent", "guide", "--timezone", "Europe/Atlantis"), "Unknown time zone"),
    ],
)
def test_mistakes_are_reported_and_nothing_is_written(
    args: Sequence[str], words: str, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["setup", *args]) == 2
    assert words in capsys.readouterr().err
    assert not own.exists()


def test_the_zone_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TZ", raising=False)
    place = tmp_path / "zoneinfo/Europe/Rome"
    place.parent.mkdir(parents=True)
    place.touch()
    (tmp_path / "localtime").symlink_to(place)
    assert model_wizard.zone_here(tmp_path / "localtime") == "Europe/Rome"
    assert model_wizard.zone_here(tmp_path / "nothing") == "UTC"
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert model_wizard.zone_here(tmp_path / "nothing") == "Asia/Tokyo"


# At a terminal


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Somebody types these lines, and those keys where nothing is shown."""

    def types(lines: Sequence[str], keys: Sequence[str]) -> None:
        monkeypatch.setattr(prompts, "is_interactive", lambda: True)
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        typed = iter(keys)

        def getpass(*_: object) -> str:
            return next(typed)

        monkeypatch.setattr("getpass.getpass", getpass)

    return types


def test_what_was_typed_secretly_is_never_quoted(
    own: Path, typing: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMPTY_KEY_0123", "")
    refused = ["AKIA_SECRETKEY_0123456789", "EMPTY_KEY_0123", "sk-sécret-0123456789", "sk-\x1b-0123456789"]
    typing(["openai:small", "Europe/Berlin", "none"], [*refused, KEY])
    assert main(["setup", "--no-test"]) == 0
    said = capsys.readouterr()
    assert said.err.count("This is neither a usable key") == len(refused)
    assert not any(key in said.out + said.err for key in (*refused, "0123", KEY))
    assert (own.parent / "keys/openai").read_text() == f"{KEY}\n"


def test_a_refused_configuration_leaves_the_key_that_was_there(own: Path, typing: Callable[..., None]) -> None:
    key = own.parent / "keys/openai"
    key.parent.mkdir(parents=True)
    key.write_text("the old one\n")
    Path("palaver.yaml").write_text("bussy: queue\n")
    typing(["openai:small", "Europe/Berlin"], [KEY])
    assert main(["setup", "--no-test"]) == 2
    assert (own.exists(), key.read_text()) == (False, "the old one\n")


def test_a_file_that_cannot_be_added_to_is_left_alone(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.parent.mkdir()
    own.write_text("busy: queue\n...\n")
    assert main(["setup", "--agent", "guide", "--timezone", "Europe/Berlin"]) == 2
    assert "Palaver cannot edit" in capsys.readouterr().err
    assert own.read_text() == "busy: queue\n...\n"


ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    def __init__(self, *args: str) -> None:
        self._master, slave = pty.openpty()
        self.process = start_module(
            "palaver",
            *args,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "200"},
            start_new_session=True,
        )
        os.close(slave)
        self.shown = ""
        self._read = 0

    def shows(self, words: str) -> None:
        """Wait until these words are there, behind those that were waited for before."""
        end = time.monotonic() + PATIENCE
        while (found := self.shown.find(words, self._read)) < 0:
            ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{words!r} is not there, but: {self.shown!r}"
            try:
                self.shown += ESCAPES.sub("", os.read(self._master, 65536).decode(errors="replace"))
            except OSError:
                raise AssertionError(f"{words!r} never came, but: {self.shown!r}") from None
        self._read = found + len(words)

    def types(self, text: str) -> None:
        os.write(self._master, text.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(own: Path) -> Iterator[Terminal]:
    assert not own.exists()
    terminal = Terminal("setup")
    yield terminal
    terminal.close()


def test_a_model_is_picked_from_lists_and_its_key_is_seen_by_nobody(own: Path, terminal: Terminal) -> None:
    with provider(lists("small-embed", "large", "small"), Says(text="Yes.")) as served:
        terminal.shows("Which model answers?")
        terminal.shows("  1  OpenAI\r\n  2  Anthropic")
        terminal.shows("Number or name [openai]")
        terminal.types("openia\n")
        terminal.shows("Did you mean openai?")
        terminal.shows("Number or name [openai]")
        terminal.types("?\n")
        terminal.shows("Choose who runs the model.")
        terminal.shows("Number or name [openai]")
        terminal.types("9\n")
        terminal.shows("What is the address of yours?")
        terminal.types("http://127.0.0.1:9/v1\n")
        terminal.shows("Your key for http://")
        terminal.types("NOT_SET\n")
        terminal.shows("This is neither a usable key")
        terminal.shows("Your key for http://")
        time.sleep(0.2)  # like a person; before, the terminal may still show what is typed
        terminal.types(f"{KEY}\n")
        terminal.shows("http://127.0.0.1:9/v1: it cannot be reached.")
        terminal.shows("Press Enter to keep it anyway.")
        terminal.types(f"{served.url}/v1\n")
        terminal.shows("Which model?")
        terminal.shows("  1  large\r\n  2  small\r\n")
        terminal.types("7\n")
        terminal.shows("There is no choice '7'. Use a number from 1 to 2, or a name")
        terminal.types(f"{served.url}/v1\n")
        terminal.shows(f"There is no choice '{served.url}/v1'.")
        terminal.types("2\n")
        terminal.shows("Your time zone?")
        terminal.types("Europe/Berlin\n")
        terminal.shows("openai:small answers from now on. The test succeeded. The key is in ")
        terminal.shows("Next: run palaver chat")
        terminal.shows("Which chat app do you want to talk in?")
        terminal.shows("1  Telegram")
        terminal.shows("Webhook")
        terminal.types("none\n")
        terminal.shows("No chat app was connected. The agent is saved. No gateway runs here. Next: run palaver chat")
        assert terminal.process.wait(PATIENCE) == 0
        assert f"Bearer {KEY}" in served.keys
    assert KEY not in terminal.shown
    assert "Testing openai:small (0 s)" in terminal.shown
    (keys,) = (own.parent / "keys").iterdir()
    assert keys.read_text() == f"{KEY}\n"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    assert own.read_text() == (
        f'agent:\n  name: model\n  model: "openai:small"\n  base_url: "{served.url}/v1"\n'
        f"  key_file: keys/{keys.name}\ntimezone: Europe/Berlin\n"
    )


def test_a_local_model_is_chosen_by_memory_and_needs_a_yes(own: Path, terminal: Terminal) -> None:
    terminal.shows("A model that runs on this machine")
    terminal.shows("Number or name [openai]")
    terminal.types("local\n")
    terminal.shows("qwen3-4b, 4 billion parameters")
    terminal.shows("qwen3-0.6b, 0.6 billion parameters")
    terminal.shows("Number or name [qwen3-")
    terminal.types("?\n")
    terminal.shows("This machine has ")
    terminal.types(f"{own.parent}/nowhere.gguf\n")
    terminal.shows("This is no model file")
    terminal.shows("Try again?")
    terminal.types("n\n")
    assert terminal.process.wait(PATIENCE) != 0
    assert not own.exists()


@pytest.mark.parametrize("interrupts", [False, True])
def test_someone_who_leaves_in_the_middle_changes_nothing(own: Path, terminal: Terminal, *, interrupts: bool) -> None:
    terminal.shows("Number or name [openai]")
    if interrupts:
        terminal.process.send_signal(signal.SIGINT)
        terminal.shows("palaver: ")
    else:
        terminal.types("\x04")
        terminal.shows("palaver: The input ended before the questions did. ")
    terminal.shows("Nothing was changed")
    assert terminal.process.wait(PATIENCE) == 1
    assert not own.exists()


def test_a_model_that_does_not_answer_is_asked_for_again_and_a_chat_app_can_wait(
    own: Path, typing: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    wrong, right = (Refuses(status=404), Refuses(status=404)), (lists("small"), Says(text="Yes."))
    with provider(*wrong, *right) as served:
        typing(
            [*("server", f"{served.url}/v1", "samll", "Asia/Tokyo", "y"), *("", "", "small", "")],
            [KEY, ""],
        )
        assert main(["setup"]) == 1, "nobody answers which chat app"
    said = capsys.readouterr()
    assert "the list of models has status 404." in said.err
    assert "openai:samll does not answer" in said.err
    assert "openai:small answers from now on" in said.out
    assert "No chat app was connected. The agent is saved. No gateway runs here." in said.err
    assert "Asia/Tokyo" in own.read_text()
    assert served.keys[-1] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("said", "model"),
    [
        ("gpt-5-mini", "openai:gpt-5-mini"),
        ("openai/gpt-5-mini", "openai:gpt-5-mini"),
        ("openai:gpt-5-mini", "openai:gpt-5-mini"),
        ("claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
    ],
)
def test_a_model_is_spelled_one_way_however_it_is_given(own: Path, said: str, model: str) -> None:
    assert main(["setup", "--model", said, "--key-env", "MY_KEY", "--no-test"]) == 0
    assert f'model: "{model}"' in own.read_text()


def test_questions_are_wrapped_between_words(
    typing: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    typing(["?"], [])
    assert main(["setup"]) == 1
    said = capsys.readouterr().err.replace("[openai] ", "[openai]\n")  # as a terminal shows what is typed
    assert "You need a key of that" in said.replace("\n", " ")
    assert all(len(line) <= 50 for line in said.splitlines() if not line.startswith("palaver:")), said
