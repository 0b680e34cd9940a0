"""What may be configured for an app, and what is reported where it is wrong."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from palaver.config.errors import MalformedConfig
from palaver.config.loader import load_with_sources
from palaver.platforms.plugins import known_platforms, load_factory
from palaver.platforms.slack.client import SlackOptions
from tests.platforms.slack.world import APP_TOKEN, BOT_TOKEN

TOKENS = {"bot_token": BOT_TOKEN, "app_token": APP_TOKEN}


def test_two_tokens_are_enough_and_are_not_shown() -> None:
    made = SlackOptions.model_validate(TOKENS)
    assert (made.api_url, made.reply_in_thread) == ("https://slack.com/api", False)
    assert "secret" not in repr(made)


def test_mistakes_are_reported_with_what_is_wanted() -> None:
    mistakes = [
        ({"bot_token": APP_TOKEN}, "begins with xoxb-"),
        ({"bot_token": f"{BOT_TOKEN}\n"}, "begins with xoxb-"),
        ({"app_token": BOT_TOKEN}, "begins with xapp-"),
        ({"api_url": "slack.com"}, "a URL, like"),
        ({"tokn": "x"}, "tokn"),
    ]
    for changed, words in mistakes:
        with pytest.raises(ValidationError) as raised:
            SlackOptions.model_validate({**TOKENS, **changed})
        assert words in str(raised.value)


def test_a_mistake_in_the_configuration_is_reported_without_the_token(tmp_path: Path) -> None:
    (own := tmp_path / "own.yaml").write_text(
        f"platforms: {{slack: {{accounts: {{helper: {{bot_token: 42-secret, app_token: {APP_TOKEN}}}}}}}}}"
    )
    with pytest.raises(MalformedConfig) as raised:
        load_with_sources(
            tmp_path, {"PALAVER_CONFIG": str(own), "PALAVER_HOME": "/data"}, known_platforms(), load_factory
        )
    (mistake,) = raised.value.mistakes
    assert "xoxb-" in str(mistake)
    assert "42-secret" not in str(mistake)
