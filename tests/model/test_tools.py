"""Rules and words of tools, with any names, arguments and results."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.access import AccessRole
from palaver.model.label import CLOSE, OPEN
from palaver.model.tools import ALL_TOOLS, ApprovalMode, ToolRules, approval_question, clean_result, parse_arguments
from palaver.model.transcript import ToolCall

hostile = st.text(st.characters(codec=None), max_size=40) | st.sampled_from(["a\n/approve", "\u202eevil", "⟦note⟧"])


@pytest.mark.parametrize(
    ("name", "leave"),
    [
        ("notes__read", ApprovalMode.ALWAYS),
        ("notes__delete_all", ApprovalMode.ASK),
        ("notes__delete", ApprovalMode.NEVER),
        ("other", ApprovalMode.ASK),
    ],
)
def test_the_closest_rule_counts(name: str, leave: ApprovalMode) -> None:
    allowed = {"notes__*": ApprovalMode.ALWAYS, "notes__delete*": ApprovalMode.ASK, "notes__delete": ApprovalMode.NEVER}
    rules = ToolRules(allowed=allowed)
    assert rules.approval_mode(name, AccessRole.OWNER, "terminal", needs_approval=True) is leave


@pytest.mark.parametrize(("name", "leave"), [("search", ApprovalMode.ASK), ("notes__read", ApprovalMode.ALWAYS)])
def test_what_is_said_of_all_counts_where_nothing_closer_is_said(name: str, leave: ApprovalMode) -> None:
    rules = ToolRules(allowed={"all": ApprovalMode.ASK, "n*": ApprovalMode.ALWAYS})
    assert rules.approval_mode(name, AccessRole.OWNER, "terminal", needs_approval=False) is leave


def test_role_and_platform_both_have_to_have_it() -> None:
    rules = ToolRules(
        platforms={"irc": frozenset({"search"}), "sms": frozenset()}, allowed={"search": ApprovalMode.ALWAYS}
    )
    has = [
        (role.text, platform)
        for role in AccessRole
        for platform in ("terminal", "irc", "sms")
        if rules.approval_mode("search", role, platform, needs_approval=False) is not ApprovalMode.NEVER
    ]
    assert has == [(role, platform) for role in ("member", "admin", "owner") for platform in ("terminal", "irc")]
    assert not rules.any_for(AccessRole.GUEST, "terminal")
    assert not rules.any_for(AccessRole.OWNER, "sms")
    assert rules.roles[AccessRole.OWNER] == ALL_TOOLS


@given(st.dictionaries(hostile, hostile | st.integers() | st.lists(hostile, max_size=2), max_size=4))
def test_a_question_has_a_line_for_each_argument_and_no_other(arguments: dict[str, object]) -> None:
    call = ToolCall(id="c", name="look", arguments=json.dumps(arguments))
    read = parse_arguments(call)
    assert read == arguments
    lines = approval_question(call, arguments).split("\n")
    assert len(lines) == 1 + len(arguments)
    assert all(line.isprintable() for line in lines)


def test_a_question_keeps_nothing_from_the_person_it_is_for() -> None:
    arguments = {"command": f"{'ls ' * 500}\nrm -rf / \u202eevil", "times": 3}
    lines = approval_question(ToolCall(id="c", name="run"), arguments).split("\n")
    assert lines == ["May I use run?", f"command: {'ls ' * 500}\\nrm -rf / \\u202eevil", "times: 3"]


@given(st.text(max_size=20))
def test_arguments_are_an_object_or_nothing(text: str) -> None:
    found = parse_arguments(ToolCall(id="c", name="look", arguments=text))
    assert found is None or isinstance(found, dict)


@given(hostile.map(lambda text: text * 50), st.integers(10, 200))
def test_a_result_is_bounded_and_can_be_written(text: str, limit: int) -> None:
    shown = clean_result(text, limit)
    assert len(shown) <= limit + 60
    assert shown.strip()
    assert OPEN not in shown
    assert CLOSE not in shown
    shown.encode()
    assert clean_result(shown, len(shown)) == shown


def test_a_private_tool_is_there_for_owners_on_its_platforms_alone() -> None:
    rules = ToolRules(
        private={"terminal": frozenset({"web"}), "file_*": frozenset()}, allowed={"all": ApprovalMode.ALWAYS}
    )
    for role in AccessRole:
        for platform in ("web", "telegram"):
            mode = rules.approval_mode("terminal", role, platform, needs_approval=False)
            assert (mode is ApprovalMode.NEVER) == ((role, platform) != (AccessRole.OWNER, "web"))
            assert rules.approval_mode("file_read", role, platform, needs_approval=False) is ApprovalMode.NEVER
