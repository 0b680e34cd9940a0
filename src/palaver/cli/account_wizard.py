"""An account on a platform: asked for, tried, and written down, with its secrets in files of their own."""

import getpass
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from palaver.cli.loop import run
from palaver.cli.output import confirmed, print_note
from palaver.cli.probe import ask_account
from palaver.config.option_errors import allowed_by, example_of
from palaver.config.paths import configuration_files
from palaver.config.secrets import FILE, SET, is_secret, read_secret
from palaver.model.errors import BadArgument, InvalidInput, PalaverError
from palaver.model.text import escape_invisible
from palaver.platforms.plugins import AdapterFactory, load_factory
from palaver.protocols.adapter import SetupGuide, SetupQuestion

__all__ = [
    "Joined",
    "NotTaken",
    "Unanswered",
    "ask_for",
    "ask_secretly",
    "is_somebody_there",
    "join",
]

_ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,40}")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class NotTaken(PalaverError):
    """The platform was asked, and does not take the account."""


@dataclass(frozen=True, kw_only=True)
class Joined:
    """What is to be written."""

    platform: str
    account: str
    fields: dict[str, str] = field(default_factory=dict[str, str])
    """Options as they are written."""
    options: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """The same with secrets in their places."""
    files: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Secrets that were typed, by the names of the files that they go into."""
    known_as: str = ""
    """Who it is on the platform, as that says."""
    guide: SetupGuide

    @property
    def way(self) -> tuple[str, str, str, str]:
        return "platforms", self.platform, "accounts", self.account


def join(platform: str, account: str, given: Sequence[str], *, tests: bool) -> Joined:
    """Raises where it cannot be had; nothing is written here."""
    found = load_factory(platform)
    if not _ACCOUNT.fullmatch(account):
        raise BadArgument(
            "An account cannot be called", found=account, allowed="letters, digits, - and _", example="main"
        )
    guide = _guide(found)
    begin = partial(_begun, found, partial(Joined, platform=platform, account=account, guide=guide), given)
    if not is_somebody_there():
        return _tried(found, _filled(found, begin()), tests=tests)
    if guide.before:
        print_note(guide.before)
    while True:
        try:
            return _tried(found, _asked(found, begin()), tests=tests)
        except (InvalidInput, NotTaken) as refusal:
            print_note(str(refusal))
            if not confirmed("Once more?"):
                raise Unanswered from None


def _begun(found: AdapterFactory, make: Callable[[], Joined], given: Sequence[str]) -> Joined:
    """With what was said on the command line."""
    joined = make()
    example = f"palaver setup {joined.platform} {_example(found, joined.guide)}"
    for each in given:
        option, separator, value = each.partition("=")
        if not separator or not value:
            raise BadArgument("--set cannot be", found=option, allowed="OPTION=VALUE", example=example)
        _take_given(found, joined, option, value)
    return joined


def _open_questions(joined: Joined) -> Iterator[SetupQuestion]:
    for question in joined.guide.questions:
        is_meant = not question.only_if or question.only_if in joined.options
        if is_meant and question.option not in joined.options and question.unless not in joined.options:
            yield question


def _guide(found: AdapterFactory) -> SetupGuide:
    guide: Any = getattr(found, "guide", None)
    if isinstance(guide, SetupGuide):
        return guide
    fields = found.options.model_fields
    needed = [name for name, each in fields.items() if each.is_required()]
    return SetupGuide(
        questions=[SetupQuestion(option=name, prompt=fields[name].description or f"{name}?") for name in needed]
    )


# What is asked


def _asked(found: AdapterFactory, joined: Joined) -> Joined:
    for question in _open_questions(joined):
        if question.help:
            print_note(question.help)
        asks = ask_secretly if _is_secret(found, question.option) else ask_for
        usual = "a new one" if question.generate else _usual(joined, question)
        asks(question.prompt, usual, _taker(found, joined, question, usual))
    return joined


def _taker(found: AdapterFactory, joined: Joined, question: SetupQuestion, usual: str) -> Callable[[str], None]:
    def take(said: str) -> None:
        text = question.generate() if question.generate and said == usual else said
        secret = _is_secret(found, question.option)
        if text and not secret:
            _validate(found, {question.option: text}, alone=True)
        if text:
            _put(joined, question.option, text, secret=secret)
        elif question.required:
            raise BadArgument(f"{question.option} cannot be", found="", allowed="an answer", example=usual or "…")

    return take


def _usual(joined: Joined, question: SetupQuestion) -> str:
    folder = configuration_files(Path.cwd()).user.absolute().parent
    return question.default.replace("{folder}", str(folder)).replace("{account}", joined.account)


def _put(joined: Joined, option: str, said: str, *, secret: bool) -> None:
    """A secret is typed, or the name of a variable that holds it; it is never quoted."""
    if not secret:
        joined.fields[option] = joined.options[option] = said
    elif os.environ.get(said):
        joined.fields[option], joined.options[option] = f"${{{said}}}", os.environ[said]
    elif said in os.environ or _VARIABLE.fullmatch(said) or not said.isprintable():
        raise BadArgument(
            "What was typed cannot be",
            found="a variable that is not set, nor a secret with such characters",
            allowed=f"a secret, or a variable that is set; any other in a file: --set {option}{FILE}=FILE",
            example="TELEGRAM_TOKEN",
        )
    else:
        name = f"keys/{joined.platform}-{joined.account}-{option}"
        joined.fields[f"{option}{FILE}"], joined.options[option], joined.files[name] = name, said, said


def _is_secret(found: AdapterFactory, option: str) -> bool:
    field = found.options.model_fields.get(option)
    return field is not None and is_secret(field.annotation)


# What was given on the command line


def _filled(found: AdapterFactory, joined: Joined) -> Joined:
    """With what counts where nothing is said, as nobody is there to be asked."""
    for question in _open_questions(joined):
        usual = question.generate() if question.generate else _usual(joined, question)
        if usual:
            _put(joined, question.option, usual, secret=_is_secret(found, question.option))
        elif question.required:
            raise BadArgument(
                f"Nobody is at the terminal to be asked for {question.option}:",
                found="no --set",
                allowed="--set OPTION=VALUE",
                example=f"palaver setup {joined.platform} {_example(found, joined.guide)}",
            )
    return joined


def _take_given(found: AdapterFactory, joined: Joined, option: str, value: str) -> None:
    reference = _REFERENCE.fullmatch(value)
    of = option.removesuffix(FILE)
    if of != option and _is_secret(found, of) and option not in found.options.model_fields:
        place = Path(value).expanduser().absolute()
        joined.fields[option], joined.options[of] = str(place), read_secret(place)
    elif not _is_secret(found, option):
        _put(joined, option, value, secret=False)
    elif reference and os.environ.get(reference[1]):
        _put(joined, option, reference[1], secret=True)
    else:
        raise BadArgument(
            f"{option} is a secret and cannot be",
            found="on the command line, where others see it",
            allowed=f"{option}{FILE}=FILE, or {option}=${{VARIABLE}} with one that is set",
            example=f"palaver setup {joined.platform} --set {option}{FILE}=FILE",
        )


def _example(found: AdapterFactory, guide: SetupGuide) -> str:
    names = [each.option for each in guide.questions if each.required and not each.default] or ["OPTION"]
    return " ".join(f"--set {name}{FILE}=FILE" if _is_secret(found, name) else f"--set {name}=…" for name in names)


# Whether it works


def _tried(found: AdapterFactory, joined: Joined, *, tests: bool) -> Joined:
    _validate(found, joined.options)
    if not tests:
        return joined
    answer = run(ask_account(joined.platform, joined.account, joined.options))
    if not answer.ok:
        words = _without(answer.words, joined)
        raise NotTaken(f"{joined.platform} says: {words}; nothing was changed, and --no-test does not ask")
    return replace(joined, known_as=answer.words if answer.was_asked else "")


def _validate(found: AdapterFactory, options: Mapping[str, str], *, alone: bool = False) -> None:
    """Raises BadArgument, never with a secret in it; `alone`, only for what is wrong whatever else is said."""
    allowed = ", ".join(found.options.model_fields)
    for name in options:
        if name not in found.options.model_fields:
            raise BadArgument("There is no option", found=name, allowed=allowed, example="--set OPTION=VALUE")
    try:
        found.options.model_validate(options)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        for fault in faults:
            if not alone or (fault["loc"] and fault["loc"][0] in options):
                alternatives = [each for each in faults if each["loc"][:1] == fault["loc"][:1]]
                raise _refusal(found, options, alternatives) from None


def _refusal(found: AdapterFactory, options: Mapping[str, str], faults: Sequence[ErrorDetails]) -> BadArgument:
    fault = faults[0]
    name = str(fault["loc"][0]) if fault["loc"] else ""
    given = SET if _is_secret(found, name) else options.get(name, "")
    option, _, example = example_of(found.options, name).partition(": ")
    return BadArgument(
        f"{name} cannot be" if name else "An account does not work with",
        found=("missing" if fault["type"] == "missing" else given) if name else ", ".join(options) or "no options",
        allowed=allowed_by(faults),
        example=f"--set {option}={example}" if name else "--set OPTION=VALUE",
    )


def _without(words: str, joined: Joined) -> str:
    for secret in joined.options.values():
        words = words.replace(secret, "(set)") if secret and secret not in joined.fields.values() else words
    return words


T = TypeVar("T")


class Unanswered(PalaverError):
    def __init__(self) -> None:
        super().__init__("nothing was changed")


def is_somebody_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_for(question: str, usual: str, read: Callable[[str], T]) -> T:
    """What `read` makes of the answer. What it refuses is told, and asked for again."""
    return _until_right(
        lambda: _line(f"{escape_invisible(question)}{f' [{escape_invisible(usual)}]' if usual else ''} "), usual, read
    )


def ask_secretly(question: str, usual: str, read: Callable[[str], T]) -> T:
    """The same, and what is typed is not shown."""
    shown = f"{escape_invisible(question)}{f' [{escape_invisible(usual)}]' if usual else ''} "
    return _until_right(lambda: getpass.getpass(shown, sys.stderr), usual, read)


def _until_right(listen: Callable[[], str], usual: str, read: Callable[[str], T]) -> T:
    while True:
        try:
            return read(listen().strip() or usual)
        except InvalidInput as refusal:
            print_note(str(refusal))
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            raise Unanswered from None


def _line(question: str) -> str:
    print(question, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line
