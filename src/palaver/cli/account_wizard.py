"""Ask for the options of a platform account, test it, and keep its secrets in files."""

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

_ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,40}")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class AccountRejected(PalaverError):
    """The platform rejected the account."""


@dataclass(frozen=True, kw_only=True)
class AccountDraft:
    """The account to write."""

    platform: str
    account: str
    fields: dict[str, str] = field(default_factory=dict[str, str])
    """Options as written into the file."""
    options: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """The same with the secrets themselves."""
    files: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Typed secrets by the name of the file they go into."""
    known_as: str = ""
    """The account's name according to the platform."""
    guide: SetupGuide

    @property
    def way(self) -> tuple[str, str, str, str]:
        return "platforms", self.platform, "accounts", self.account


def draft_account(platform: str, account: str, given: Sequence[str], *, tests: bool) -> AccountDraft:
    """Ask for and test an account; write nothing."""
    found = load_factory(platform)
    if not _ACCOUNT.fullmatch(account):
        raise BadArgument(
            "An account cannot be called", found=account, allowed="letters, digits, - and _", example="main"
        )
    guide = _guide(found)
    begin = partial(_start_draft, found, partial(AccountDraft, platform=platform, account=account, guide=guide), given)
    if not is_interactive():
        return _test(found, _fill_defaults(found, begin()), tests=tests)
    if guide.before:
        print_note(guide.before)
    while True:
        try:
            return _test(found, _ask_questions(found, begin()), tests=tests)
        except (InvalidInput, AccountRejected) as refusal:
            print_note(str(refusal))
            if not confirmed("Try again?"):
                raise Cancelled from None


def _start_draft(found: AdapterFactory, make: Callable[[], AccountDraft], given: Sequence[str]) -> AccountDraft:
    """Start from the options of the command line."""
    draft = make()
    example = f"palaver setup {draft.platform} {_example(found, draft.guide)}"
    for each in given:
        option, separator, value = each.partition("=")
        if not separator or not value:
            raise BadArgument("--set cannot be", found=option, allowed="OPTION=VALUE", example=example)
        _store_given(found, draft, option, value)
    return draft


def _open_questions(draft: AccountDraft) -> Iterator[SetupQuestion]:
    for question in draft.guide.questions:
        is_meant = not question.only_if or question.only_if in draft.options
        if is_meant and question.option not in draft.options and question.unless not in draft.options:
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


def _ask_questions(found: AdapterFactory, draft: AccountDraft) -> AccountDraft:
    for question in _open_questions(draft):
        if question.help:
            print_note(question.help)
        asks = ask_secretly if _is_secret(found, question.option) else ask_for
        usual = "a new one" if question.generate else _default_answer(draft, question)
        asks(question.prompt, usual, _answer_parser(found, draft, question, usual))
    return draft


def _answer_parser(
    found: AdapterFactory, draft: AccountDraft, question: SetupQuestion, usual: str
) -> Callable[[str], None]:
    def take(said: str) -> None:
        text = question.generate() if question.generate and said == usual else said
        secret = _is_secret(found, question.option)
        if text and not secret:
            _validate(found, {question.option: text}, alone=True)
        if text:
            _store_answer(draft, question.option, text, secret=secret)
        elif question.required:
            raise BadArgument(
                f"{question.option} cannot be empty.", found="", allowed="an answer", example=usual or "…"
            )

    return take


def _default_answer(draft: AccountDraft, question: SetupQuestion) -> str:
    folder = configuration_files(Path.cwd()).user.absolute().parent
    return question.default.replace("{folder}", str(folder)).replace("{account}", draft.account)


def _store_answer(draft: AccountDraft, option: str, said: str, *, secret: bool) -> None:
    """Store an answer; a secret can be typed or be the name of a variable. Errors never repeat it."""
    if not secret:
        draft.fields[option] = draft.options[option] = said
    elif os.environ.get(said):
        draft.fields[option], draft.options[option] = f"${{{said}}}", os.environ[said]
    elif said in os.environ or _VARIABLE.fullmatch(said) or not said.isprintable():
        raise BadArgument(
            "This is neither a set variable nor a usable secret.",
            found="",
            allowed=f"a secret, a variable that is set, or --set {option}{FILE}=FILE",
            example="TELEGRAM_TOKEN",
        )
    else:
        name = f"keys/{draft.platform}-{draft.account}-{option}"
        draft.fields[f"{option}{FILE}"], draft.options[option], draft.files[name] = name, said, said


def _is_secret(found: AdapterFactory, option: str) -> bool:
    field = found.options.model_fields.get(option)
    return field is not None and is_secret(field.annotation)


# What was given on the command line


def _fill_defaults(found: AdapterFactory, draft: AccountDraft) -> AccountDraft:
    """Fill in defaults: there is no terminal to ask."""
    for question in _open_questions(draft):
        usual = question.generate() if question.generate else _default_answer(draft, question)
        if usual:
            _store_answer(draft, question.option, usual, secret=_is_secret(found, question.option))
        elif question.required:
            raise BadArgument(
                f"There is no terminal to ask for {question.option}.",
                found="",
                allowed="--set OPTION=VALUE",
                example=f"palaver setup {draft.platform} {_example(found, draft.guide)}",
            )
    return draft


def _store_given(found: AdapterFactory, draft: AccountDraft, option: str, value: str) -> None:
    reference = _REFERENCE.fullmatch(value)
    of = option.removesuffix(FILE)
    if of != option and _is_secret(found, of) and option not in found.options.model_fields:
        place = Path(value).expanduser().absolute()
        draft.fields[option], draft.options[of] = str(place), read_secret(place)
    elif not _is_secret(found, option):
        _store_answer(draft, option, value, secret=False)
    elif reference and os.environ.get(reference[1]):
        _store_answer(draft, option, reference[1], secret=True)
    else:
        raise BadArgument(
            f"{option} is a secret: others could see it on the command line.",
            found="",
            allowed=f"{option}{FILE}=FILE, or {option}=${{VARIABLE}} with one that is set",
            example=f"palaver setup {draft.platform} --set {option}{FILE}=FILE",
        )


def _example(found: AdapterFactory, guide: SetupGuide) -> str:
    names = [each.option for each in guide.questions if each.required and not each.default] or ["OPTION"]
    return " ".join(f"--set {name}{FILE}=FILE" if _is_secret(found, name) else f"--set {name}=…" for name in names)


# Whether it works


def _test(found: AdapterFactory, draft: AccountDraft, *, tests: bool) -> AccountDraft:
    _validate(found, draft.options)
    if not tests:
        return draft
    answer = run(ask_account(draft.platform, draft.account, draft.options))
    if not answer.ok:
        words = _without_secrets(answer.words, draft)
        raise AccountRejected(f"{draft.platform} says: {words}. Nothing was changed. Use --no-test to skip the test.")
    return replace(draft, known_as=answer.words if answer.was_asked else "")


def _validate(found: AdapterFactory, options: Mapping[str, str], *, alone: bool = False) -> None:
    """Raise BadArgument without secrets in it; with `alone`, only for mistakes in the given options."""
    allowed = ", ".join(found.options.model_fields)
    for name in options:
        if name not in found.options.model_fields:
            raise BadArgument("Unknown option", found=name, allowed=allowed, example="--set OPTION=VALUE")
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


def _without_secrets(words: str, draft: AccountDraft) -> str:
    for secret in draft.options.values():
        words = words.replace(secret, "(set)") if secret and secret not in draft.fields.values() else words
    return words


T = TypeVar("T")


class Cancelled(PalaverError):
    def __init__(self) -> None:
        super().__init__("Nothing was changed.")


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_for(question: str, usual: str, read: Callable[[str], T]) -> T:
    """Ask until `read` accepts the answer, and return its result."""
    return _ask_until_valid(
        lambda: _line(f"{escape_invisible(question)}{f' [{escape_invisible(usual)}]' if usual else ''} "), usual, read
    )


def ask_secretly(question: str, usual: str, read: Callable[[str], T]) -> T:
    """Do the same without showing what is typed."""
    shown = f"{escape_invisible(question)}{f' [{escape_invisible(usual)}]' if usual else ''} "
    return _ask_until_valid(lambda: getpass.getpass(shown, sys.stderr), usual, read)


def _ask_until_valid(listen: Callable[[], str], usual: str, read: Callable[[str], T]) -> T:
    while True:
        try:
            return read(listen().strip() or usual)
        except InvalidInput as refusal:
            print_note(str(refusal))
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            raise Cancelled from None


def _line(question: str) -> str:
    print(question, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line
