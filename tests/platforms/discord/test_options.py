"""The options of a bot, and what people read if one is wrong."""

from typing import Any

import pytest
from pydantic import ValidationError

from palaver.platforms.discord.client import DiscordOptions
from tests.platforms.discord.world import TOKEN


def test_a_token_is_enough_and_is_not_shown() -> None:
    made = DiscordOptions.model_validate({"token": TOKEN})
    assert (made.roles, made.auto_thread, made.api_url) == ((), False, "https://discord.com/api/v10")
    assert TOKEN not in repr(made)


def test_roles_can_be_numbers() -> None:
    assert DiscordOptions.model_validate({"token": TOKEN, "roles": [41771983423143936, "7"]}).roles == (
        "41771983423143936",
        "7",
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"token": "no token"}, "three parts"),
        ({"token": f"{TOKEN}\n"}, "three parts"),
        ({"roles": ["Admin"]}, "a list of role ids"),
        ({"roles": 7}, "a list of role ids"),
        ({"api_url": "discord.com"}, "a URL, like"),
        ({"tokn": "x"}, "tokn"),
    ],
)
def test_mistakes_say_what_is_wanted(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as raised:
        DiscordOptions.model_validate({"token": TOKEN, **changed})
    assert words in str(raised.value)
