"""What can be configured for an account, and what is reported where it is wrong."""

import re

import pytest
from pydantic import ValidationError

from palaver.platforms.plugins import known_platforms, load_factory
from palaver.platforms.signal import PLATFORM
from palaver.platforms.signal.adapter import SignalOptions
from tests.platforms.signal.server import NUMBER, UUID


def test_a_number_is_enough() -> None:
    made = SignalOptions.model_validate({"number": NUMBER})
    assert (made.url, made.read_receipts) == ("http://127.0.0.1:8080", True)


def test_mistakes_are_reported_with_what_is_wanted() -> None:
    for changed, words in (
        ({"number": "5550100200"}, "country code"),
        ({"number": "+1 555 0100200"}, "no spaces"),
        ({"number": f"{NUMBER}\n"}, "country code"),
        ({"url": "localhost:8080"}, "a URL, like"),
        ({"token": "x"}, "token"),
    ):
        with pytest.raises(ValidationError, match=re.escape(words)):
            SignalOptions.model_validate({"number": NUMBER, **changed})


def test_owners_are_named_by_number_or_account_id() -> None:
    guide = PLATFORM.guide
    assert guide
    for right in (NUMBER, f"alt:{UUID}", guide.owner_example):
        assert re.fullmatch(guide.owner_pattern, right)
    for wrong in (UUID, "alice", "alt:alice"):
        assert not re.fullmatch(guide.owner_pattern, wrong)


def test_it_is_found_as_a_plugin() -> None:
    assert "signal" in known_platforms()
    assert load_factory("signal").platform.name == "signal"
