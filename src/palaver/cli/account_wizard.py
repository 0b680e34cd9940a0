"""Ask for the options of a platform account, test it, and keep its secrets in files."""

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from palaver.cli import prompts
from palaver.cli.loop import run
from palaver.cli.output import progress_line
from palaver.cli.probe import try_account
from palaver.cli.prompts import Cancelled, Choice, agrees, ask_for, choose, say, say_steps
from palaver.config.account_draft import AccountDraft, start_draft, validate_options, without_secrets
from palaver.config.accounts import example_of
from palaver.config.paths import configuration_files
from palaver.config.secrets import FILE, read_secret
from palaver.gateway.installer import NotInstalled, install
from palaver.model.errors import BadArgument, InvalidInput, PalaverError
from palaver.model.platform import SetupQuestion
from palaver.platforms.plugins import offered_platforms
from palaver.protocols.installation import MissingPackages, find_installation

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

_NONE = "none"
_MAX_PROGRESS = 78


class AccountRejected(PalaverError):
    """The platform rejected the account."""


def choose_platform() -> str:
    """Ask which chat app to connect; return "" for none."""
    choices = [*(Choice(name, title) for name, title in offered_platforms()), Choice(_NONE, "None for now")]
    chosen = choose(
        "Which chat app do you want to talk in?",
        choices,
        _NONE,
        help="The terminal and the web window always work, and you can connect more apps later with palaver setup.",
    )
    return "" if chosen == _NONE else chosen


def draft_account(platform: str, account: str, given: Sequence[str], *, tests: bool, installs: bool) -> AccountDraft:
    """Ask for and test an account; write nothing."""
    guide = _start(platform, account, installs=installs).guide
    fill = _ask_questions if prompts.is_interactive() else _fill_defaults
    if guide.before and prompts.is_interactive():
        say("First, on the platform:")
        say_steps(guide.before)
    while True:
        try:
            draft = start_draft(platform, account)
            _take_given(draft, given)
            fill(draft)
            return _test(draft, tests=tests)
        except (InvalidInput, AccountRejected) as refusal:
            if not prompts.is_interactive():
                raise
            say(str(refusal))
            if not agrees("Try again?", usual=True):
                raise Cancelled from None


def _start(platform: str, account: str, *, installs: bool) -> AccountDraft:
    try:
        return start_draft(platform, account)
    except MissingPackages as missing:
        install_missing(missing, installs=installs)
    return start_draft(platform, account)


def install_missing(missing: MissingPackages, *, installs: bool) -> None:
    """Install what is missing, if the person agrees and this environment can be changed."""
    if find_installation().obstacle:
        raise NotInstalled(missing, find_installation().obstacle)
    if not installs:
        if not prompts.is_interactive():
            raise missing
        say(f"{missing.user} needs {missing.what}.")
        if not agrees("Install it now?", usual=True):
            raise Cancelled(f"Run it yourself: {missing.line}")
    started = time.monotonic()
    with progress_line() as show_line:

        def show(step: str) -> None:
            show_line(f"Installing, {time.monotonic() - started:.0f} s: {step}"[:_MAX_PROGRESS])

        show("starting")
        run(install(missing, show))
    say(f"Installed {', '.join(missing.packages)}.")


def _folder() -> Path:
    return configuration_files(Path.cwd()).user.absolute().parent


def _ask_questions(draft: AccountDraft) -> None:
    for question in draft.open_questions():
        if question.help:
            say(question.help)
        usual = "a new one" if question.generate else draft.default_answer(question, _folder())
        ask_for(
            question.prompt,
            usual,
            _answer_parser(draft, question, usual),
            help=_explain(draft, question),
            secret=draft.is_secret(question.option),
        )


def _explain(draft: AccountDraft, question: SetupQuestion) -> str:
    """Say what an option is for and what it looks like."""
    field = draft.adapter.options.model_fields.get(question.option)
    described = (field.description or "") if field else ""
    example = example_of(draft.adapter.options, question.option)
    kept = "It goes into a file that only you can read." if draft.is_secret(question.option) else f"Example: {example}."
    return " ".join(filter(None, (question.help, described, kept)))


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
    answer = try_account(draft.platform, draft.account, draft.options)
    if not answer.ok:
        words = without_secrets(answer.words, draft).rstrip(".")
        title = draft.adapter.platform.title
        said = words if title in words else f"{title} says: {words}"
        raise AccountRejected(f"{said}. Nothing was changed. Use --no-test to skip the test.")
    return replace(draft, known_as=answer.words if answer.was_asked else "")
