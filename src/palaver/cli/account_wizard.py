"""Ask for the options of a platform account, test it, and keep its secrets in files."""

import getpass
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from palaver.cli.loop import run
from palaver.cli.output import confirmed, print_note
from palaver.config.account_draft import AccountDraft, start_draft, validate_options, without_secrets
from palaver.config.paths import configuration_files
from palaver.config.secrets import FILE, read_secret
from palaver.gateway.probe import ask_account
from palaver.model.errors import BadArgument, InvalidInput, PalaverError
from palaver.model.text import escape_invisible
from palaver.protocols.adapter import SetupQuestion

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class AccountRejected(PalaverError):
    """The platform rejected the account."""


def draft_account(platform: str, account: str, given: Sequence[str], *, tests: bool) -> AccountDraft:
    """Ask for and test an account; write nothing."""
    guide, fill = start_draft(platform, account).guide, _ask_questions if is_interactive() else _fill_defaults
    if guide.before and is_interactive():
        print_note(guide.before)
    while True:
        try:
            draft = start_draft(platform, account)
            _take_given(draft, given)
            fill(draft)
            return _test(draft, tests=tests)
        except (InvalidInput, AccountRejected) as refusal:
            if not is_interactive():
                raise
            print_note(str(refusal))
            if not confirmed("Try again?"):
                raise Cancelled from None


def _folder() -> Path:
    return configuration_files(Path.cwd()).user.absolute().parent


def _ask_questions(draft: AccountDraft) -> None:
    for question in draft.open_questions():
        if question.help:
            print_note(question.help)
        usual = "a new one" if question.generate else draft.default_answer(question, _folder())
        ask_for(question.prompt, usual, _answer_parser(draft, question, usual), secret=draft.is_secret(question.option))


def _answer_parser(draft: AccountDraft, question: SetupQuestion, usual: str) -> Callable[[str], None]:
    def take(said: str) -> None:
        text = question.generate() if question.generate and said == usual else said
        if not text and question.required:
            raise BadArgument(
                f"{question.option} cannot be empty.", found="", allowed="an answer", example=usual or "…"
            )
        if text and not draft.is_secret(question.option):
            validate_options(draft, {question.option: text}, alone=True)
        if text:
            draft.store(question.option, text)

    return take


def _fill_defaults(draft: AccountDraft) -> None:
    """Fill in defaults: there is no terminal to ask."""
    for question in draft.open_questions():
        usual = question.generate() if question.generate else draft.default_answer(question, _folder())
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
    validate_options(draft, draft.options)
    if not tests:
        return draft
    answer = run(ask_account(draft.platform, draft.account, draft.options))
    if not answer.ok:
        words = without_secrets(answer.words, draft).rstrip(".")
        raise AccountRejected(f"{draft.platform} says: {words}. Nothing was changed. Use --no-test to skip the test.")
    return replace(draft, known_as=answer.words if answer.was_asked else "")


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
