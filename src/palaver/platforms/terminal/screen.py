"""The interactive screen: an input line, growing answers above it, and command completion."""

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import emacs_insert_mode
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText, FormattedText, merge_formatted_text
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.utils import is_dumb_terminal

from palaver.model.redact import hide_keys, mask_keys
from palaver.platforms.terminal import wire
from palaver.platforms.terminal.client import PendingOffer, printable
from palaver.platforms.terminal.files import save_file
from palaver.platforms.terminal.render import render_markdown, render_note, wrap
from palaver.platforms.terminal.wire import MenuEntry, Welcome

_PROMPT = "> "
_GREETING = "/help lists commands, Alt-Enter starts a new line, Ctrl-C stops an answer, Ctrl-D quits."
_WAITING = "Waiting for the gateway. What you send is kept until it is there …"
_RECAP = "The conversation so far:"
_NAME = "Palaver"
_MAX_RECAP = 240
_TRY = "Try, for example:"
_MAX_SUGGESTIONS = 3
_MAX_DRAWN = 5_000
"""Drawing a longer line on every key press is too slow."""
_MAX_DRAWN_ANSWER = 4_000
"""How much of the end of a growing answer to render each time it grows."""
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_SECONDS = 0.1
_DIM = "ansibrightblack"
_BOLD = "bold"


class LiveScreen:
    """`lines` yields what is typed. Ctrl-C calls `interrupt`; if that returns False, it clears the line."""

    def __init__(self, history: Path, interrupt: Callable[[], bool], *, accepts: bool = False) -> None:
        """With `accepts`, do not ask whether to use what is offered."""
        self._commands: tuple[MenuEntry, ...] = ()
        self._interrupt = interrupt
        self._partial: tuple[str, str] | None = None
        """The id and the text so far of the unfinished message."""
        self._drawn: tuple[tuple[str, int, int], str] | None = None
        """The unfinished message as it was drawn last, and what it was drawn from."""
        self._note = _WAITING
        self._model: str | None = None
        self._doing = ""
        self._since: float | None = None
        """When the agent began to work on what is not answered yet."""
        self._spinning: asyncio.Task[None] | None = None
        self.offer = PendingOffer(is_accepted=accepts)
        self._is_new = True
        self._is_plain = is_dumb_terminal()
        self._is_prompting = False
        self._session: PromptSession[str] = PromptSession(
            self._prompt,
            history=_History(str(history)),
            completer=_CommandCompleter(lambda: self._commands),
            key_bindings=self._keys(),
            input_processors=[_LongLineProcessor(), _KeyProcessor()],
            prompt_continuation=lambda width, _line, _wraps: " " * width,
        )

    async def lines(self) -> AsyncGenerator[str]:
        """Yield the typed lines until Ctrl-D."""
        while True:
            self._is_prompting = True
            try:
                line = await self._session.prompt_async()
            except EOFError:
                break
            finally:
                self._is_prompting = False
            line = self.offer.read(line, default=True)
            if self.offer.unanswered and not line.startswith("/connect"):
                self.tell(f"To use it later: {self.offer.unanswered}")
            if line.strip():
                yield line
        self.rest()

    def rest(self) -> None:
        """Print an unfinished message as it is."""
        self.idle()
        self._finish_partial()

    # From the gateway

    def welcome(self, welcome: Welcome) -> None:
        self._commands = welcome.commands
        self._note = ""
        if self._is_new:
            self.tell(_GREETING)
            self._print_recap(welcome.recap)
            if welcome.suggestions:
                self.tell("\n  ".join([_TRY, *welcome.suggestions[:_MAX_SUGGESTIONS]]))
            self._ask(welcome.offer)
        self._is_new = False
        self._draw()

    def _ask(self, offer: wire.Offer | None) -> None:
        self.offer.made(offer)
        if offer is not None and not self.offer.is_accepted:
            self.tell(f"{offer.found} Use it? [Y/n]")

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
        is_answer = self._partial is None or self._partial[0] == message
        if is_answer:
            self._partial = None
        self._note = ""
        self._print_answer(text, is_timed=is_answer)
        if is_answer:  # The next one is timed for itself.
            self._stop_spinner()

    def heard(self, text: str) -> None:
        self.tell(f"{_PROMPT}{text}")

    def refuse(self, why: str) -> None:
        """Show why a message was not sent."""
        self.tell(f"palaver: {why}")

    def tell(self, sentence: str) -> None:
        """Show a notice."""
        self._print(render_note(sentence, self._width, is_plain=self._is_plain))

    def save(self, file: wire.File) -> None:
        self.tell(save_file(file, Path()))

    def recap(self, lines: Sequence[wire.RecapLine]) -> None:
        if lines:
            self.tell(_RECAP)
            self._print_recap(lines)

    def typing(self, model: str | None, doing: str) -> None:
        self._model = model
        self._doing = doing.replace("`", "")
        self._since = time.monotonic() if self._since is None else self._since
        if self._spinning is None and not self._is_plain:
            self._spinning = asyncio.create_task(self._spin())

    def idle(self) -> None:
        self._stop_spinner()

    # Drawing

    def _stop_spinner(self) -> None:
        self._since = None
        if self._spinning is not None:
            self._spinning.cancel()
            self._spinning = None
        self._draw()

    async def _spin(self) -> None:
        while True:
            self._draw()
            await asyncio.sleep(_FRAME_SECONDS)

    def _spinner(self) -> str:
        """Return what the agent does: `⠙ openai:gpt-5-mini · 3 s · Ctrl-C stops`, or the tool instead of the time."""
        if self._since is None:
            return ""
        elapsed = time.monotonic() - self._since
        frame = _FRAMES[int(elapsed / _FRAME_SECONDS) % len(_FRAMES)]
        done = printable(self._doing) or f"{elapsed:.0f} s"
        return " · ".join((f"{frame} {printable(self._model or 'Answering')}", done, "Ctrl-C stops"))

    def _finish_partial(self) -> None:
        """Print the unfinished message as it is."""
        if self._partial:
            text = self._partial[1]
            self._partial = None
            self._print_answer(f"{text} …", is_timed=True)

    def _print_answer(self, text: str, *, is_timed: bool) -> None:
        """Print an answer under its own heading, so that nobody takes it for a question."""
        facts = [_NAME]
        if is_timed and self._since is not None:
            facts += filter(None, (self._model, f"{time.monotonic() - self._since:.0f} s"))
        heading = render_note(" · ".join(facts), self._width, is_plain=self._is_plain, style="bold cyan")
        self._print(f"\n{heading}\n{render_markdown(text, self._width, is_plain=self._is_plain)}\n")

    def _print_recap(self, lines: Iterable[wire.RecapLine]) -> None:
        for said in lines:
            self.tell(f"{_PROMPT if said.by_person else ''}{_shortened(said.text)}")

    def _print(self, text: str) -> None:
        """Print above the input line. What is typed meanwhile stays there: the terminal never echoes it."""
        app = self._session.app
        if app.is_running:
            app.renderer.erase()
        if self._is_plain and self._is_prompting:  # Nothing is redrawn there.
            text = f"\n{text}\n{_PROMPT}{self._session.default_buffer.text}"
        else:
            text += "\n"
        app.output.write_raw(text.replace("\n", "\r\n"))
        app.output.flush()
        if app.is_running:
            app.renderer.request_absolute_cursor_position()
            self._draw()

    def _draw(self) -> None:
        self._session.app.invalidate()

    @property
    def _width(self) -> int:
        return self._session.app.output.get_size().columns

    def _prompt(self) -> AnyFormattedText:
        """Return the prompt, with the end of the growing answer above it until the line is sent, as much as fits."""
        if self._session.app.is_done:
            return FormattedText([(_BOLD, _PROMPT)])
        above = self._growing()
        note = "\n".join(filter(None, (self._note, self._spinner())))
        parts = FormattedText([(_DIM, f"{note}\n" if note else ""), (_BOLD, _PROMPT)])
        return merge_formatted_text([ANSI(f"\n{above}\n" if above else ""), parts])

    def _growing(self) -> str:
        if self._partial is None or self._is_plain:
            return ""
        size = self._session.app.output.get_size()
        source = self._partial[1], size.columns, size.rows // 2
        if self._drawn is None or self._drawn[0] != source:
            self._drawn = source, "\n".join(_tail(*source))
        return self._drawn[1]

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            if not self._interrupt():
                event.current_buffer.text = ""

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

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


def _tail(text: str, columns: int, rows: int) -> list[str]:
    """Return the last lines of an unfinished answer. The end of a long one is shown as plain text."""
    if len(text) <= _MAX_DRAWN_ANSWER:
        return render_markdown(text, columns).split("\n")[-rows:]
    return wrap(text[-_MAX_DRAWN_ANSWER:].partition(" ")[2], columns)[-rows:]


class _History(FileHistory):
    """A history file that only its owner can read; errors such as a full disk are ignored."""

    def load_history_strings(self) -> Iterable[str]:
        with suppress(OSError):
            yield from super().load_history_strings()

    def append_string(self, string: str) -> None:
        """Keep no key of a model provider, not even until the end of this run."""
        super().append_string(mask_keys(string))

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
                    name = printable(command.name)
                    meaning = printable(command.help)
                    yield Completion(f"/{name}", start_position=-len(typed), display_meta=meaning)


class _KeyProcessor(Processor):
    """Hides the key of a model provider, as a password is hidden."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        line = transformation_input.document.lines[transformation_input.lineno]
        hidden = hide_keys(line) if len(line) <= _MAX_DRAWN else line
        return Transformation(transformation_input.fragments if hidden == line else [("", hidden)])


class _LongLineProcessor(Processor):
    """Shows the length of a line that is too long to draw."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        length = len(transformation_input.document.lines[transformation_input.lineno])
        if length <= _MAX_DRAWN:
            return Transformation(transformation_input.fragments)
        shown = f"[{length} characters]"
        return Transformation([(_DIM, shown)], lambda at: len(shown) if at else 0, lambda at: length if at else 0)
