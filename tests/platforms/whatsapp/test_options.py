"""Options are checked with the configuration, and setup asks for them."""

from typing import Any

import pytest
from pydantic import ValidationError

from palaver.platforms.plugins import make_adapter
from palaver.platforms.whatsapp import PLATFORM
from palaver.platforms.whatsapp.cloud import WhatsAppOptions
from tests.platforms.whatsapp.fakes import options_of

NEEDED = {"phone_number_id": "106540352242922", "token": "t", "app_secret": "s", "verify_token": "v"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"phone_number_id": "+1 555"}, "digits, like 106540352242922"),
        ({"app_secret": " "}, "app_secret: a text that is not empty"),
        ({"template": "My Template"}, "the name of a template"),
        ({"template_language": "English"}, "a language code"),
        ({"api_url": "graph.facebook.com"}, "https://graph.facebook.com/v25.0"),
        ({"colour": "green"}, "Extra inputs"),
        ({"bridge_url": "http://127.0.0.1:8787", "bridge_secret": "s"}, "either a bridge_url or a phone_number_id"),
        ({"bridge_secret": "s"}, "bridge_secret is for the other"),
        ({"bridge_url": "http://127.0.0.1:8787"}, "bridge_secret: a text that is not empty"),
    ],
)
def test_a_wrong_option_says_what_is_right(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        options_of(**wrong)


def test_secrets_are_not_shown() -> None:
    shown = repr(WhatsAppOptions.model_validate({**NEEDED, "token": "EAAJB", "app_secret": "9b2f"}))
    assert "EAAJB" not in shown
    assert "9b2f" not in shown


def test_setup_asks_for_what_is_needed() -> None:
    assert PLATFORM.guide
    asked = {question.option for question in PLATFORM.guide.questions}
    assert {*NEEDED, "bridge_url", "bridge_secret"} <= asked <= set(WhatsAppOptions.model_fields)


def test_the_adapter_is_found_by_its_entry_point() -> None:
    assert make_adapter("whatsapp", "shop", NEEDED).account == "shop"
