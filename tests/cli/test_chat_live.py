"""`palaver chat` as somebody at a terminal sees it."""

import os
import pty
import re
import select
import signal
import stat
import termios
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from palaver.platforms.terminal import wire
from palaver.platforms.terminal.socket import listen, socket_path
from tests.cli.processes import PATIENCE, Place, until
from tests.forkserver import start_module

_LOCAL_FLAGS = 3
ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z~]|[=>()][0-9A-B]?|\][^\x07]*\x07)")


class Terminal:
    """What is typed into it, and what stands on it, one thing after the other."""

    def __init__(self, place: Place, *args: str) -> None:
        self._master, slave = pty.openpty()
        self.process = start_module(
            "palaver",
            "chat",
            *args,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=place.environment,
            cwd=place.home.parent,
            start_new_session=True,
        )
        os.close(slave)
        self._unread = ""

    def types(self, text: str) -> None:
        """Like a person, who sees first and types then: while something is printed, keys are not the program's."""
        time.sleep(0.3)
        until(lambda: self._takes_keys() or self.process.poll() is not None)
        os.write(self._master, text.encode())

    def _takes_keys(self) -> bool:
        """Whether keys go to the program: else the terminal collects lines, of at most 4,096 characters."""
        return not termios.tcgetattr(self._master)[_LOCAL_FLAGS] & termios.ICANON

    def shows(self, words: str) -> str:
        """Wait until these words are there; gives what came before them and forgets it."""
        end = time.monotonic() + PATIENCE
        while words not in self._unread:
            ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{words!r} is not there, but: {self._unread!r}"
            try:
                self._unread += ESCAPES.sub("", os.read(self._master, 65536).decode(errors="replace"))
            except OSError:
                raise AssertionError(f"{words!r} never came, but: {self._unread!r}") from None
        before, _, self._unread = self._unread.partition(words)
        return before

    def ends(self) -> int:
        until(lambda: self._leaves() is not None)
        return self.process.returncode

    def _leaves(self) -> int | None:
        self.types("\x04")
        return self.process.poll()

    def closes(self) -> None:
        """As its window is closed: nobody is there, and the kernel hangs up."""
        os.close(self._master)
        self._master = -1
        self.process.send_signal(signal.SIGHUP)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self._master >= 0:
            os.close(self._master)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


@contextmanager
def terminal(place: Place, *args: str) -> Generator[Terminal]:
    terminal = Terminal(place, *args)
    try:
        terminal.shows("Ctrl-D quits.")
        yield terminal
    finally:
        terminal.close()


def test_what_no_gateway_got_is_named_at_the_end(place: Place) -> None:
    with listen(socket_path(place.home, str(place.home / "palaver.db"))) as listener:
        here = Terminal(place)
        try:
            gateway, _ = listener.accept()
            here.shows("Waiting for the gateway.")
            here.types("early words\r")
            here.shows("early words")
            here.shows("Waiting for the gateway.")
            gateway.sendall(wire.encode(wire.Welcome()))
            here.shows("Ctrl-D quits.")
            gateway.close()
            here.shows("Gateway disconnected.")  # the next connection gets no answer
            here.types("lost words\r")
            here.shows("lost words")
            here.types("\x04")
            here.shows("Not sent, because no gateway was there: 'lost words'. Up brings it back.")
        finally:
            here.close()


def test_a_conversation_with_history_completion_and_a_recap(place: Place) -> None:
    with terminal(place) as here:
        here.types("hello\r")
        here.shows("You said: hello")
        here.types("/he")
        here.shows("List all commands, or explain one")
        here.types("\x03")
        here.types("\x1b[A")
        here.shows("hello")
        here.types(" again\r")
        here.shows("You said: hello again")
        assert here.ends() == 0
    assert stat.S_IMODE((place.home / "history").stat().st_mode) == 0o600
    with terminal(place) as here:
        for words in ("> hello", "You said: hello", "> hello again", "You said: hello again"):
            here.shows(words)
        assert here.ends() == 0
    with terminal(place, "--chat", "work") as here:
        here.types("/quit\r")
        here.shows("palaver: Ctrl-D quits.")
        here.types("something else\r")
        assert "hello" not in here.shows("You said: something else")
        assert here.ends() == 0


def test_an_answer_grows_and_can_be_stopped(place: Place) -> None:
    place.configure("agent: {name: echo, streams: true, delay: 200ms}")
    with terminal(place) as here:
        words = " ".join(f"w{number}" for number in range(200))
        here.types(f"{words}\r")
        here.shows("You")  # Only what changes is drawn anew, so the words come one by one.
        here.shows("said:")
        here.shows("w3")
        here.types("\x03")
        here.shows("Stopping.")
        here.types("/status\r")
        here.shows("idle")
        assert here.ends() == 0


def test_a_paste_that_is_too_long_is_refused_and_the_conversation_goes_on(place: Place) -> None:
    with terminal(place) as here:
        here.types(f"\x1b[200~{'a' * 200_001}\x1b[201~")
        here.types("\r")
        here.shows("more than 200000 characters")
        here.types("hello\r")
        here.shows("You said: hello")
        assert here.ends() == 0


def test_a_chat_that_cannot_be_attached_gets_a_notice_and_says_nothing(place: Place) -> None:
    here = Terminal(place, "--attach", "nowhere")
    try:
        here.shows("There is no conversation 'nowhere'")
        here.shows("so nothing was sent")
        assert here.process.wait(PATIENCE) == 2
    finally:
        here.close()


def test_answers_are_told_apart_and_lines_typed_meanwhile_stay(place: Place) -> None:
    place.configure("agent: {name: echo, streams: true, delay: 100ms}")
    with terminal(place) as here:
        here.types("one **two**\x1b\rthree four five six\r")
        here.shows("echo · ")
        here.types("typed meanwhile")
        here.shows("Palaver · echo · ")
        answer = here.shows("typed meanwhile")
        assert "You said: one two" in answer
        assert "three four five six" in answer
        here.types("\x15")
        assert here.ends() == 0


def test_a_line_that_is_sent_stays_without_what_stood_above_it(place: Place) -> None:
    with terminal(place) as here:
        here.types("!slow 600 never\r")
        here.shows("Ctrl-C stops")
        here.types("Z")
        here.shows("Z")
        here.types("\r")
        shown = here.shows("Your message is queued.")
        assert "> Z" in shown
        assert not re.search(r"Ctrl-C stops\s+> Z", shown)
        here.types("\x03")
        here.shows("Stopping.")
        assert here.ends() == 0


def test_resume_shows_what_was_said_and_export_saves_a_file(place: Place) -> None:
    with terminal(place) as here:
        here.types("tulips\r")
        here.shows("You said: tulips")
        here.types("/new\r")
        here.shows("Started a new conversation.")
        here.types("/sessions\r")
        here.shows("tulips")
        here.types("/resume 2\r")
        here.shows("The conversation so far:")
        here.shows("> tulips")
        here.shows("You said: tulips")
        here.types("/export\r")
        here.shows("Saved tulips.md")
        here.shows("This is “tulips”.")
        assert here.ends() == 0
    assert "You said: tulips" in (place.home.parent / "tulips.md").read_text()
