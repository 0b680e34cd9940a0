"""A platform account before it is written: its questions and answers, checked, with its secrets apart."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from palaver.config.accounts import allowed_by, example_of
from palaver.config.secrets import FILE, SET, is_secret
from palaver.model.errors import BadArgument
from palaver.model.platform import SetupGuide, SetupQuestion
from palaver.platforms.plugins import AdapterFactory, load_factory

_ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,40}")
VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
"""How a variable is named; a secret hardly ever looks like that."""


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

    @property
    def next_steps(self) -> list[str]:
        """What to do on the platform once the account works."""
        return [step.replace("{account}", self.account) for step in self.guide.after]

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

    def default_answer(self, question: SetupQuestion, folder: Path) -> str:
        """Return the usual answer; `folder` is where the configuration is."""
        return question.default.replace("{folder}", str(folder)).replace("{account}", self.account)

    def open_questions(self) -> Iterator[SetupQuestion]:
        for question in self.guide.questions:
            is_meant = not question.only_if or question.only_if in self.options
            if is_meant and question.option not in self.options and question.unless not in self.options:
                yield question


def start_draft(platform: str, account: str) -> AccountDraft:
    """Return an account without answers; raise BadArgument if there is no such adapter or name."""
    adapter = load_factory(platform)
    if not _ACCOUNT.fullmatch(account):
        raise BadArgument(
            "An account cannot be called", found=account, allowed="letters, digits, - and _", example="main"
        )
    return AccountDraft(platform=platform, account=account, adapter=adapter, guide=_guide(adapter))


def _guide(adapter: AdapterFactory) -> SetupGuide:
    if adapter.platform.guide:
        return adapter.platform.guide
    needed = {name: each for name, each in adapter.options.model_fields.items() if each.is_required()}
    return SetupGuide(
        questions=[SetupQuestion(option=name, prompt=each.description or f"{name}?") for name, each in needed.items()]
    )


def check_owner(draft: AccountDraft, owner: str) -> str:
    """Return the owner's user id in the platform's canonical form; raise BadArgument if it cannot be one."""
    guide, platform = draft.guide, draft.adapter.platform
    with suppress(BadArgument):  # the guide says what is missing
        owner = owner and platform.canonical_user(owner)
    if owner and guide.owner_pattern and not re.fullmatch(guide.owner_pattern, owner):
        prompt = guide.owner_prompt.rstrip("?")
        allowed = f"{prompt[:1].lower()}{prompt[1:]}, or nothing to pair with a code later"
        raise BadArgument("The owner cannot be", found=owner, allowed=allowed, example=guide.owner_example)
    return owner


def validate_options(draft: AccountDraft, options: Mapping[str, str], *, alone: bool = False) -> None:
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
    is_missing = fault["type"] == "missing"
    option, _, example = example_of(draft.adapter.options, name).partition(": ")
    if name and draft.is_secret(name) and not is_missing:
        return BadArgument(f"The {name} is not valid.", found="", allowed=allowed_by(faults), example="")
    return BadArgument(
        f"{name} cannot be" if name else "An account does not work with",
        found=("missing" if is_missing else options.get(name, "")) if name else ", ".join(options) or "no options",
        allowed=allowed_by(faults),
        example=f"--set {option}={example}" if name else "--set OPTION=VALUE",
    )


def without_secrets(words: str, draft: AccountDraft) -> str:
    for secret in draft.options.values():
        words = words.replace(secret, SET) if secret and secret not in draft.fields.values() else words
    return words
