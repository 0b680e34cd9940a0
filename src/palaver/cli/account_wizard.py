"""Ask for the options of a platform account, test it, and keep its secrets in files."""

import getpass
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from palaver.cli.loop import run
from palaver.cli.output import confirmed, print_note
from palaver.cli.probe import ask_account
from palaver.config.accounts import allowed_by, example_of
from palaver.config.paths import configuration_files
from palaver.config.secrets import FILE, SET, is_secret, read_secret
from palaver.model.errors import BadArgument, InvalidInput, PalaverError
from palaver.model.text import escape_invisible
from palaver.platforms.plugins import AdapterFactory, load_factory
from palaver.protocols.adapter import SetupGuide, SetupQuestion

_ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,40}")
VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class AccountRejected(PalaverError):
    """The platform rejected the account."""


@dataclass(frozen=True, kw_only=True)
class AccountDraft:
    """The account to write."""

    platform: str
    account: str
    adapter: AdapterFactory
    guide: SetupGuide
    fields: dict[str, str] = field(default_factory=dict[str, str])
    """Options as written into the file."""
    options: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """The same with the secrets themselves."""
    files: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Typed secrets by the name of the file they go into."""
    known_as: str = ""
    """The account's name according to the platform."""

    @property
    def path(self) -> tuple[str, str, str, str]:
        return "platforms", self.platform, "accounts", self.account

    @property
    def example(self) -> str:
        names = [each.option for each in self.guide.questions if each.required and not each.default] or ["OPTION"]
        options = (f"--set {name}{FILE}=FILE" if self.is_secret(name) else f"--set {name}=…" for name in names)
        return f"palaver setup {self.platform} {' '.join(options)}"

    def is_secret(self, option: str) -> bool:
        found = self.adapter.options.model_fields.get(option)
        return found is not None and is_secret(found.annotation)

    def store(self, option: str, said: str) -> None:
        """Store an answer; a secret can be typed or be the name of a variable. Errors never repeat it."""
        if not self.is_secret(option):
            self.fields[option] = self.options[option] = said
        elif os.environ.get(said):
            self.fields[option], self.options[option] = f"${{{said}}}", os.environ[said]
        elif said in os.environ or VARIABLE.fullmatch(said) or not said.isprintable():
            raise BadArgument(
                "This is neither a usable secret nor a variable that is set.",
                found="",
                allowed=f"a secret, a variable that is set, or --set {option}{FILE}=FILE",
                example="TELEGRAM_TOKEN",
            )
        else:
            name = f"keys/{self.platform}-{self.account}-{option}"
            self.fields[f"{option}{FILE}"], self.options[option], self.files[name] = name, said, said

    def default_answer(self, question: SetupQuestion) -> str:
        folder = configuration_files(Path.cwd()).user.absolute().parent
        return question.default.replace("{folder}", str(folder)).replace("{account}", self.account)

    def open_questions(self) -> Iterator[SetupQuestion]:
        for question in self.guide.questions:
            is_meant = not question.only_if or question.only_if in self.options
            if is_meant and question.option not in self.options and question.unless not in self.options:
                yield question


def draft_account(platform: str, account: str, given: Sequence[str], *, tests: bool) -> AccountDraft:
    """Ask for and test an account; write nothing."""
    adapter = load_factory(platform)
    if not _ACCOUNT.fullmatch(account):
        raise BadArgument(
            "An account cannot be called", found=account, allowed="letters, digits, - and _", example="main"
        )
    guide, fill = _guide(adapter), _ask_questions if is_interactive() else _fill_defaults
    if guide.before and is_interactive():
        print_note(guide.before)
    while True:
        try:
            draft = AccountDraft(platform=platform, account=account, adapter=adapter, guide=guide)
            _take_given(draft, given)
            fill(draft)
            return _test(draft, tests=tests)
        except (InvalidInput, AccountRejected) as refusal:
            if not is_interactive():
                raise
            print_note(str(refusal))
            if not confirmed("Try again?"):
                raise Cancelled from None


def _guide(adapter: AdapterFactory) -> SetupGuide:
    guide: Any = getattr(adapter, "guide", None)
    if isinstance(guide, SetupGuide):
        return guide
    needed = {name: each for name, each in adapter.options.model_fields.items() if each.is_required()}
    return SetupGuide(
        questions=[SetupQuestion(option=name, prompt=each.description or f"{name}?") for name, each in needed.items()]
    )


def _ask_questions(draft: AccountDraft) -> None:
    for question in draft.open_questions():
        if question.help:
            print_note(question.help)
        usual = "a new one" if question.generate else draft.default_answer(question)
        ask_for(question.prompt, usual, _answer_parser(draft, question, usual), secret=draft.is_secret(question.option))


def _answer_parser(draft: AccountDraft, question: SetupQuestion, usual: str) -> Callable[[str], None]:
    def take(said: str) -> None:
        text = question.generate() if question.generate and said == usual else said
        if not text and question.required:
            raise BadArgument(
                f"{question.option} cannot be empty.", found="", allowed="an answer", example=usual or "…"
            )
        if text and not draft.is_secret(question.option):
            _validate(draft, {question.option: text}, alone=True)
        if text:
            draft.store(question.option, text)

    return take


def _fill_defaults(draft: AccountDraft) -> None:
    """Fill in defaults: there is no terminal to ask."""
    for question in draft.open_questions():
        usual = question.generate() if question.generate else draft.default_answer(question)
        if usual:
            draft.store(question.option, usual)
        elif question.required:
            raise BadArgument(
                f"There is no terminal to ask for {question.option}.",
                found="",
                allowed="--set OPTION=VALUE",
                example=draft.example,
            )


def _take_given(draft: AccountDraft, given: Sequence[str]) -> None:
    """Start from the options of the command line."""
    for each in given:
        option, separator, value = each.partition("=")
        if not separator or not value:
            raise BadArgument("--set cannot be", found=option, allowed="OPTION=VALUE", example=draft.example)
        reference = _REFERENCE.fullmatch(value)
        secret = option.removesuffix(FILE)
        if secret != option and draft.is_secret(secret) and option not in draft.adapter.options.model_fields:
            place = Path(value).expanduser().absolute()
            draft.fields[option], draft.options[secret] = str(place), read_secret(place)
        elif not draft.is_secret(option):
            draft.store(option, value)
        elif reference and os.environ.get(reference[1]):
            draft.store(option, reference[1])
        else:
            raise BadArgument(
                f"{option} is a secret: others could see it on the command line.",
                found="",
                allowed=f"{option}{FILE}=FILE, or {option}=${{VARIABLE}} with one that is set",
                example=f"palaver setup {draft.platform} --set {option}{FILE}=FILE",
            )


def _test(draft: AccountDraft, *, tests: bool) -> AccountDraft:
    _validate(draft, draft.options)
    if not tests:
        return draft
    answer = run(ask_account(draft.platform, draft.account, draft.options))
    if not answer.ok:
        words = _without_secrets(answer.words, draft)
        raise AccountRejected(f"{draft.platform} says: {words}. Nothing was changed. Use --no-test to skip the test.")
    return replace(draft, known_as=answer.words if answer.was_asked else "")


def _validate(draft: AccountDraft, options: Mapping[str, str], *, alone: bool = False) -> None:
    """Raise BadArgument without secrets in it; with `alone`, only for mistakes in the given options."""
    known = draft.adapter.options.model_fields
    for name in options:
        if name not in known:
            raise BadArgument("Unknown option", found=name, allowed=", ".join(known), example="--set OPTION=VALUE")
    try:
        draft.adapter.options.model_validate(options)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        for fault in faults:
            if not alone or (fault["loc"] and fault["loc"][0] in options):
                alternatives = [each for each in faults if each["loc"][:1] == fault["loc"][:1]]
                raise _refusal(draft, options, alternatives) from None


def _refusal(draft: AccountDraft, options: Mapping[str, str], faults: Sequence[ErrorDetails]) -> BadArgument:
    fault = faults[0]
    name = str(fault["loc"][0]) if fault["loc"] else ""
    given = SET if draft.is_secret(name) else options.get(name, "")
    option, _, example = example_of(draft.adapter.options, name).partition(": ")
    return BadArgument(
        f"{name} cannot be" if name else "An account does not work with",
        found=("missing" if fault["type"] == "missing" else given) if name else ", ".join(options) or "no options",
        allowed=allowed_by(faults),
        example=f"--set {option}={example}" if name else "--set OPTION=VALUE",
    )


def _without_secrets(words: str, draft: AccountDraft) -> str:
    for secret in draft.options.values():
        words = words.replace(secret, SET) if secret and secret not in draft.fields.values() else words
    return words


T = TypeVar("T")


class Cancelled(PalaverError):
    def __init__(self) -> None:
        super().__init__("Nothing was changed.")


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_for(question: str, usual: str, read: Callable[[str], T], *, secret: bool = False) -> T:
    """Ask until `read` accepts the answer, and return its result. A secret is not shown while it is typed."""
    prompt = f"{escape_invisible(question)}{f' [{escape_invisible(usual)}]' if usual else ''} "
    while True:
        try:
            said = getpass.getpass(prompt, sys.stderr) if secret else _line(prompt)
            return read(said.strip() or usual)
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
