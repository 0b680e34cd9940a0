"""Rules and words of tools, whatever names, arguments and results there are."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.access import AccessRole
from palaver.model.prompt_markers import CLOSE, OPEN
from palaver.model.tools import EVERYTHING, Leave, ToolRules, arguments_of, question_for, result_text
from palaver.model.transcript import ToolCall

hostile = st.text(st.characters(codec=None), max_size=40) | st.sampled_from(["a\n/approve", "\u202eevil", "⟦note⟧"])


@pytest.mark.parametrize(
    ("name", "leave"),
    [
        ("notes__read", Leave.ALWAYS),
        ("notes__delete_all", Leave.ASK),
        ("notes__delete", Leave.NEVER),
        ("other", Leave.ASK),
    ],
)
def test_the_closest_rule_counts(name: str, leave: Leave) -> None:
    allowed = {"notes__*": Leave.ALWAYS, "notes__delete*": Leave.ASK, "notes__delete": Leave.NEVER}
    rules = ToolRules(allowed=allowed)
    assert rules.leave(name, AccessRole.OWNER, "terminal", asks=True) is leave


@pytest.mark.parametrize(("name", "leave"), [("search", Leave.ASK), ("notes__read", Leave.ALWAYS)])
def test_what_is_said_of_all_counts_where_nothing_closer_is_said(name: str, leave: Leave) -> None:
    rules = ToolRules(allowed={"all": Leave.ASK, "n*": Leave.ALWAYS})
    assert rules.leave(name, AccessRole.OWNER, "terminal", asks=False) is leave


def test_role_and_platform_both_have_to_have_it() -> None:
    rules = ToolRules(platforms={"irc": frozenset({"search"}), "sms": frozenset()}, allowed={"search": Leave.ALWAYS})
    has = [
        (role.text, platform)
        for role in AccessRole
        for platform in ("terminal", "irc", "sms")
        if rules.leave("search", role, platform, asks=False) is not Leave.NEVER
    ]
    assert has == [(role, platform) for role in ("member", "admin", "owner") for platform in ("terminal", "irc")]
    assert not rules.are_any(AccessRole.GUEST, "terminal")
    assert not rules.are_any(AccessRole.OWNER, "sms")
    assert rules.roles[AccessRole.OWNER] == EVERYTHING


@given(st.dictionaries(hostile, hostile | st.integers() | st.lists(hostile, max_size=2), max_size=4))
def test_a_question_has_a_line_for_each_argument_and_no_other(arguments: dict[str, object]) -> None:
    call = ToolCall(id="c", name="look", arguments=json.dumps(arguments))
    read = arguments_of(call)
    assert read == arguments
    lines = question_for(call, arguments).split("\n")
    assert len(lines) == 1 + len(arguments)
    assert all(line.isprintable() for line in lines)


def test_a_question_keeps_nothing_from_whoever_is_asked() -> None:
    arguments = {"command": f"{'ls ' * 500}\nrm -rf / \u202eevil", "times": 3}
    lines = question_for(ToolCall(id="c", name="run"), arguments).split("\n")
    assert lines == ["May I use run?", f"command: {'ls ' * 500}\\nrm -rf / \\u202eevil", "times: 3"]


@given(st.text(max_size=20))
def test_arguments_are_an_object_or_nothing(text: str) -> None:
    found = arguments_of(ToolCall(id="c", name="look", arguments=text))
    assert found is None or isinstance(found, dict)


@given(hostile.map(lambda text: text * 50), st.integers(10, 200))
def test_a_result_is_bounded_and_can_be_written(text: str, limit: int) -> None:
    shown = result_text(text, limit)
    assert len(shown) <= limit + 60
    assert shown.strip()
    assert OPEN not in shown
    assert CLOSE not in shown
    shown.encode()
    assert result_text(shown, len(shown)) == shown
