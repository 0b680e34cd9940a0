"""The options a dialogue can name, and what the gateway is set to for them."""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

from palaver.model.access import AccessRole, Grant
from palaver.model.addressing import AddressingRules, AnswerMode
from palaver.model.key import DmScope, GroupScope, Scope, ScopedSetting
from palaver.model.quotas import Quota, QuotaKind, QuotaRules
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.model.revision import RevisionPolicy
from palaver.model.turn import BusyMode, QuestionMode
from tests.dialogues.script import Dialogue

__all__ = ["rules"]


def rules(dialogue: Dialogue) -> dict[str, object]:
    chosen = dialogue.options
    assert chosen.keys() <= {*_RULES, *_TOGETHER}, f"{dialogue.title}: there are {sorted({*_RULES, *_TOGETHER})}"
    return {
        "grants": _grants(dialogue.people),
        "burst_window": timedelta(0),
        # On a busy machine any answer can take two seconds: only who waits for the notice gets it.
        "acknowledge_after": timedelta(seconds=2) if "Still answering" in repr(dialogue.steps) else timedelta(hours=1),
        "titles": False,
        "progress": ScopedSetting(default=False),
        "scopes": ScopedSetting(
            default=Scope(
                dm=DmScope(chosen.get("dms", DmScope.PER_CHAT)),
                group=GroupScope(chosen.get("groups", GroupScope.PER_USER)),
            )
        ),
        "attention": ScopedSetting(
            default=AddressingRules(
                answers=AnswerMode(chosen.get("answers", AnswerMode.AUTO)),
                wake_words=frozenset({chosen["wake"]} if "wake" in chosen else ()),
            )
        ),
        **{_RULES[name][0]: _RULES[name][1](value) for name, value in chosen.items() if name in _RULES},
    }


_TOGETHER = {"dms", "groups", "answers", "wake", "streams"}
_RULES: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "busy": ("busy", lambda value: ScopedSetting(default=BusyMode(value))),
    "questions": ("questions", lambda value: ScopedSetting(default=QuestionMode(value))),
    "resets": ("resets", lambda value: ScopedSetting(default=ResetPolicy(mode=ResetMode(value)))),
    "notices": ("reset_notices", lambda value: ScopedSetting(default=value == "yes")),
    "revisions": ("revisions", lambda value: ScopedSetting(default=RevisionPolicy(value))),
    "pairing": ("pairing", lambda value: ScopedSetting(default=value == "yes")),
    "roles": ("command_roles", lambda value: {name: AccessRole.parse(role) for name, role in _pairs(value)}),
    "titles": ("titles", lambda value: value == "yes"),
    "daily": ("caps", lambda value: QuotaRules(caps={QuotaKind.PERSON_DAY: Quota(tokens=int(value))})),
    "each": ("caps", lambda value: QuotaRules(caps={QuotaKind.SESSION: Quota(tokens=int(value))})),
}


def _pairs(value: str) -> Iterator[tuple[str, str]]:
    """Of `model:admin,status:guest`."""
    for pair in value.split(","):
        name, _, role = pair.partition(":")
        yield name, role


def _grants(people: Mapping[str, str]) -> tuple[Grant, ...]:
    """Everybody has their role on both platforms; anyone who is alone has it at the terminal, too."""
    roles = {name: AccessRole.parse(role) for name, role in people.items() if role != "stranger"}
    grants = [
        Grant(platform=platform, user_id=name, role=role)
        for name, role in roles.items()
        for platform in ("fake", "other")
    ]
    alone = [Grant(platform="terminal", role=role) for role in roles.values() if len(people) == 1]
    return (*grants, *alone)
