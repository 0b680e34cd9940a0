from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.key import ProfileRule, choose_profile
from palaver.model.source import Source
from tests.strategies import BRIEF, sources

TOPIC = Source(platform="telegram", account="a", chat_kind="group", scope_id="s", chat_id="c", thread_id="t")
FIELDS = ("platform", "account", "scope_id", "chat_id", "thread_id")


def rule(profile: str, *fields: str) -> ProfileRule:
    return ProfileRule(profile=profile, **{name: getattr(TOPIC, name) for name in fields})


def test_without_a_matching_rule_it_is_the_main_profile() -> None:
    assert choose_profile(TOPIC, ()) == "main"
    assert choose_profile(TOPIC, (ProfileRule(profile="p", platform="discord"),)) == "main"


def test_a_profile_that_was_asked_for_stays() -> None:
    asked = replace(TOPIC, profile="own")
    assert choose_profile(asked, ()) == choose_profile(asked, (rule("p", *FIELDS),)) == "own"


@pytest.mark.parametrize("wrong", FIELDS)
def test_all_given_fields_must_match(wrong: str) -> None:
    given_fields: dict[str, Any] = {name: getattr(TOPIC, name) for name in FIELDS}
    assert choose_profile(TOPIC, (ProfileRule(profile="p", **given_fields),)) == "p"
    given_fields[wrong] = "other"
    assert choose_profile(TOPIC, (ProfileRule(profile="p", **given_fields),)) == "main"


def test_a_missing_id_matches_no_rule_for_one() -> None:
    for name in FIELDS[1:]:
        assert choose_profile(Source(platform="telegram"), (rule("p", name),)) == "main"


def test_the_narrower_place_wins_in_any_order_of_rules() -> None:
    ladder = [rule("any"), *(rule(name, name) for name in FIELDS)]
    while len(ladder) > 1:
        assert {choose_profile(TOPIC, order) for order in permutations(ladder)} == {ladder[-1].profile}
        ladder.pop()


@BRIEF
@given(st.sets(st.sampled_from(FIELDS)), st.sampled_from(FIELDS))
def test_a_rule_that_says_more_beats_one_that_says_less(fields: set[str], more: str) -> None:
    less, fuller = rule("less", *(fields - {more})), rule("fuller", *fields, more)
    assert choose_profile(TOPIC, (less, fuller)) == choose_profile(TOPIC, (fuller, less)) == "fuller"


def test_of_two_equals_the_first_wins() -> None:
    assert choose_profile(TOPIC, (rule("first", "chat_id"), rule("second", "chat_id"))) == "first"


def test_a_thread_inherits_the_rule_of_its_chat_unless_it_has_its_own() -> None:
    thread = Source(platform="discord", chat_kind="thread", chat_id="t", parent_chat_id="c")
    chat = ProfileRule(profile="chat", platform="discord", scope_id=None, chat_id="c")
    own = ProfileRule(profile="thread", chat_id="t")
    assert choose_profile(thread, (chat,)) == "chat"
    assert choose_profile(thread, (chat, own)) == "thread"


@BRIEF
@given(sources)
def test_a_rule_that_says_nothing_takes_everything(source: Source) -> None:
    assert choose_profile(replace(source, profile="main"), (ProfileRule(profile="p"),)) == "p"
