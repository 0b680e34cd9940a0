"""The screen of a conversation: a line to type in, answers that grow above it, commands that complete themselves."""

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

from palaver.platforms.terminal.wire import CommandLine, Welcome

__all__ = [
    "LiveScreen",
    "forgets_typed",
    "printable",
    "typed_lines",
]

# Controls but tab and newline; what turns the direction of text; half surrogates; separators and tags nobody sees.
_TRICKS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff\ufeff\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """The text with every such character written as its number."""
    return _TRICKS.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


_OWNER = "terminal:owner"


def typed_lines(data_dir: Path) -> Path:
    return data_dir / "history"


def forgets_typed(data_dir: Path) -> Callable[[frozenset[str]], None]:
    def forget(identities: frozenset[str]) -> None:
        file = typed_lines(data_dir)
        if _OWNER in identities and file.exists():
            file.write_bytes(b"")

    return forget


_PROMPT = "> "
_GREETING = "/help lists commands, Ctrl-C stops an answer, Ctrl-D leaves."
_LONGEST_RECAP = 240
_LONGEST_SHOWN = 5_000
"""Characters: to draw a longer line, with every key, takes longer than the keys."""
_DIM, _BOLD = "ansibrightblack", "bold"


class LiveScreen:
    """`lines` gives what is typed. Ctrl-C calls `interrupt`, or clears the line where that says there was nothing."""

    def __init__(self, history: Path, interrupt: Callable[[], bool]) -> None:
        self._commands: tuple[CommandLine, ...] = ()
        self._interrupt = interrupt
        self._growing: tuple[str, str] | None = None
        """The id of the message that is being written, and its text so far."""
        self._note = ""
        self._is_new = True
        self._printing: set[asyncio.Future[None]] = set()
        self._session: PromptSession[str] = PromptSession(
            self._above,
            history=_Typed(str(history)),
            completer=_Commands(lambda: self._commands),
            key_bindings=self._keys(),
            input_processors=[_Shorter()],
        )

    async def lines(self) -> AsyncGenerator[str]:
        """Until Ctrl-D."""
        while True:
            try:
                line = await self._session.prompt_async()
            except EOFError:
                break
            if line.strip():
                yield line
        await self.rest()

    async def rest(self) -> None:
        """Until everything is printed, also what was only half written."""
        self._leave()
        while self._printing:
            await asyncio.wait(self._printing)

    # What the gateway tells

    def welcome(self, welcome: Welcome) -> None:
        self._commands, self._note = welcome.commands, ""
        if self._is_new:
            self._print(_GREETING, _DIM)
            for said in welcome.recap:
                self._print(f"{_PROMPT if said.by_person else ''}{_shortened(said.text)}", _DIM)
        self._is_new = False
        self._draw()

    def lost(self) -> None:
        self._note = "the gateway is away; looking for it …"
        self._draw()

    def show(self, message: str, text: str, *, growing: bool) -> None:
        if self._growing and self._growing[0] != message and growing:
            self._leave()
        if growing:
            self._growing = message, text
            self._draw()
            return
        if self._growing and self._growing[0] == message:
            self._growing = None
        self._note = ""
        self._print(text)

    def heard(self, text: str) -> None:
        self._print(f"{_PROMPT}{text}", _DIM)

    def refuse(self, why: str) -> None:
        """What was typed was not said."""
        self._print(f"palaver: {why}", _DIM)

    def tell(self, sentence: str) -> None:
        """Something besides the conversation."""
        self._print(sentence, _DIM)

    def typing(self) -> None:
        self._note = "…"
        self._draw()

    # Drawing

    def _leave(self) -> None:
        """What will not be finished stays as it is."""
        if self._growing:
            self._print(f"{self._growing[1]} …")
            self._growing = None

    def _print(self, text: str, style: str = "") -> None:
        written = FormattedText([(style, printable(text))])
        printing = asyncio.ensure_future(run_in_terminal(lambda: print_formatted_text(written)))
        self._printing.add(printing)
        printing.add_done_callback(self._printing.discard)

    def _draw(self) -> None:
        self._session.app.invalidate()

    def _above(self) -> FormattedText:
        """What stands above the line: the end of the growing answer, as much as there is room for."""
        size = shutil.get_terminal_size()
        text = _tail(printable(self._growing[1]), size.columns, size.lines // 2) if self._growing else ""
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
            event.current_buffer.insert_text(event.data * event.arg + _typed_ahead(event.key_processor.input_queue))

        return keys


def _typed_ahead(keys: deque[KeyPress]) -> str:
    """The characters that wait behind a key: a paste may come as so many keys, and one by one they take minutes."""
    text = ""
    while keys and not isinstance(keys[0].key, Keys):
        text += keys.popleft().data
    return text


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_RECAP else f"{text[:_LONGEST_RECAP].rstrip()} …"


def _tail(text: str, columns: int, rows: int) -> str:
    """The last lines of it, broken as the terminal would."""
    broken = [line[at : at + columns] for line in text.split("\n") for at in range(0, max(len(line), 1), columns)]
    return "\n".join(broken[-rows:])


class _Typed(FileHistory):
    """For its owner alone; where it cannot be kept, as on a full disk, the conversation goes on without."""

    def load_history_strings(self) -> Iterable[str]:
        with suppress(OSError):
            yield from super().load_history_strings()

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            file = Path(os.fsdecode(self.filename))
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.touch(mode=0o600)
            super().store_string(string)


class _Commands(Completer):
    def __init__(self, commands: Callable[[], Iterable[CommandLine]]) -> None:
        self._commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        typed = document.text_before_cursor
        if typed.startswith("/") and " " not in typed:
            for command in self._commands():
                if command.name.startswith(typed[1:].lower()):
                    name, meaning = printable(command.name), printable(command.help)
                    yield Completion(f"/{name}", start_position=-len(typed), display_meta=meaning)


class _Shorter(Processor):
    """In place of a line that is too long to be drawn stands how long it is."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        length = len(transformation_input.document.lines[transformation_input.lineno])
        if length <= _LONGEST_SHOWN:
            return Transformation(transformation_input.fragments)
        shown = f"[{length} characters]"
        return Transformation([(_DIM, shown)], lambda at: len(shown) if at else 0, lambda at: length if at else 0)
