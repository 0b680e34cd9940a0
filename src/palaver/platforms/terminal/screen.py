"""The interactive screen: an input line, growing answers above it, and command completion."""

import asyncio
import os
import re
import shutil
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import emacs_insert_mode
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput

from palaver.platforms.terminal.wire import MenuEntry, Welcome

# Control characters except tab and newline, direction marks, lone surrogates, invisible separators and tags.
_UNSAFE_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff\ufeff\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """Escape characters that could change how a terminal shows text."""
    return _UNSAFE_CHARACTERS.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


_OWNER = "terminal:owner"


def history_file(data_dir: Path) -> Path:
    return data_dir / "history"


def history_eraser(data_dir: Path) -> Callable[[frozenset[str]], None]:
    def forget(identities: frozenset[str]) -> None:
        file = history_file(data_dir)
        if _OWNER in identities and file.exists():
            file.write_bytes(b"")

    return forget


_PROMPT = "> "
_GREETING = "/help lists commands, Ctrl-C stops an answer, Ctrl-D quits."
_MAX_RECAP = 240
_MAX_DRAWN = 5_000
"""Drawing a longer line on every key press is too slow."""
_DIM, _BOLD = "ansibrightblack", "bold"


class LiveScreen:
    """`lines` yields what is typed. Ctrl-C calls `interrupt`; if that returns False, it clears the line."""

    def __init__(self, history: Path, interrupt: Callable[[], bool]) -> None:
        self._commands: tuple[MenuEntry, ...] = ()
        self._interrupt = interrupt
        self._partial: tuple[str, str] | None = None
        """The id and the text so far of the unfinished message."""
        self._note = ""
        self._is_new = True
        self._printing: set[asyncio.Future[None]] = set()
        self._session: PromptSession[str] = PromptSession(
            self._prompt,
            history=_History(str(history)),
            completer=_CommandCompleter(lambda: self._commands),
            key_bindings=self._keys(),
            input_processors=[_LongLineProcessor()],
        )

    async def lines(self) -> AsyncGenerator[str]:
        """Yield the typed lines until Ctrl-D."""
        while True:
            try:
                line = await self._session.prompt_async()
            except EOFError:
                break
            if line.strip():
                yield line
        await self.rest()

    async def rest(self) -> None:
        """Wait until everything is printed, including an unfinished message."""
        self._finish_partial()
        while self._printing:
            await asyncio.wait(self._printing)

    # From the gateway

    def welcome(self, welcome: Welcome) -> None:
        self._commands, self._note = welcome.commands, ""
        if self._is_new:
            self._print(_GREETING, _DIM)
            for said in welcome.recap:
                self._print(f"{_PROMPT if said.by_person else ''}{_shortened(said.text)}", _DIM)
        self._is_new = False
        self._draw()

    def lost(self) -> None:
        self._note = "Gateway disconnected. Reconnecting …"
        self._draw()

    def show(self, message: str, text: str, *, growing: bool) -> None:
        if self._partial and self._partial[0] != message and growing:
            self._finish_partial()
        if growing:
            self._partial = message, text
            self._draw()
            return
        if self._partial and self._partial[0] == message:
            self._partial = None
        self._note = ""
        self._print(text)

    def heard(self, text: str) -> None:
        self._print(f"{_PROMPT}{text}", _DIM)

    def refuse(self, why: str) -> None:
        """Show why a message was not sent."""
        self._print(f"palaver: {why}", _DIM)

    def tell(self, sentence: str) -> None:
        """Show a notice."""
        self._print(sentence, _DIM)

    def typing(self) -> None:
        self._note = "…"
        self._draw()

    # Drawing

    def _finish_partial(self) -> None:
        """Print the unfinished message as it is."""
        if self._partial:
            self._print(f"{self._partial[1]} …")
            self._partial = None

    def _print(self, text: str, style: str = "") -> None:
        written = FormattedText([(style, printable(text))])
        printing = asyncio.ensure_future(run_in_terminal(lambda: print_formatted_text(written)))
        self._printing.add(printing)
        printing.add_done_callback(self._printing.discard)

    def _draw(self) -> None:
        self._session.app.invalidate()

    def _prompt(self) -> FormattedText:
        """Return the prompt with the end of the growing answer above it, as much as fits."""
        size = shutil.get_terminal_size()
        text = _tail(printable(self._partial[1]), size.columns, size.lines // 2) if self._partial else ""
        parts = [("", f"{text}\n" if text else ""), (_DIM, f"{self._note}\n" if self._note else ""), (_BOLD, _PROMPT)]
        return FormattedText(parts)

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            if not self._interrupt():
                event.current_buffer.text = ""

        @keys.add(Keys.Any, filter=emacs_insert_mode)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text(event.data * event.arg + _pending_text(event.key_processor.input_queue))

        return keys


def _pending_text(keys: deque[KeyPress]) -> str:
    """Return the queued characters: handling a paste key by key would take minutes."""
    text = ""
    while keys and not isinstance(keys[0].key, Keys):
        text += keys.popleft().data
    return text


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_RECAP else f"{text[:_MAX_RECAP].rstrip()} …"


def _tail(text: str, columns: int, rows: int) -> str:
    """Return the last lines, wrapped as the terminal would."""
    broken = [line[at : at + columns] for line in text.split("\n") for at in range(0, max(len(line), 1), columns)]
    return "\n".join(broken[-rows:])


class _History(FileHistory):
    """A history file that only its owner can read; errors such as a full disk are ignored."""

    def load_history_strings(self) -> Iterable[str]:
        with suppress(OSError):
            yield from super().load_history_strings()

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            file = Path(os.fsdecode(self.filename))
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.touch(mode=0o600)
            super().store_string(string)


class _CommandCompleter(Completer):
    def __init__(self, commands: Callable[[], Iterable[MenuEntry]]) -> None:
        self._commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        typed = document.text_before_cursor
        if typed.startswith("/") and " " not in typed:
            for command in self._commands():
                if command.name.startswith(typed[1:].lower()):
                    name, meaning = printable(command.name), printable(command.help)
                    yield Completion(f"/{name}", start_position=-len(typed), display_meta=meaning)


class _LongLineProcessor(Processor):
    """Shows the length of a line that is too long to draw."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        length = len(transformation_input.document.lines[transformation_input.lineno])
        if length <= _MAX_DRAWN:
            return Transformation(transformation_input.fragments)
        shown = f"[{length} characters]"
        return Transformation([(_DIM, shown)], lambda at: len(shown) if at else 0, lambda at: length if at else 0)
