"""What may be configured for a bot, and what is reported where it is wrong."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from palaver.config.errors import MalformedConfig
from palaver.config.loader import load_with_sources
from palaver.platforms.plugins import known_platforms, load_factory
from palaver.platforms.telegram.client import Mode, TelegramOptions
from tests.platforms.telegram.world import TOKEN


def test_a_token_is_enough_and_is_not_shown() -> None:
    made = TelegramOptions.model_validate({"token": TOKEN})
    assert (made.mode, made.api_url, made.bot_id) == (Mode.POLL, "https://api.telegram.org", 42)
    assert TOKEN not in repr(made)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"token": "no token"}, "BotFather"),
        ({"token": f"{TOKEN}\n"}, "BotFather"),
        ({"mode": "webhook"}, "public_url with mode webhook"),
        ({"mode": "push"}, "poll"),
        ({"public_url": "bot.example.org"}, "https://bot.example.org"),
        ({"api_url": "https://x y"}, "a URL, like"),
        ({"secret": "no spaces"}, "A-Z a-z 0-9"),
        ({"tokn": "x"}, "tokn"),
    ],
)
def test_mistakes_are_reported_with_what_is_wanted(changed: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError) as raised:
        TelegramOptions.model_validate({"token": TOKEN, **changed})
    assert words in str(raised.value)


def test_a_mistake_in_the_configuration_is_reported_without_the_token(tmp_path: Path) -> None:
    (own := tmp_path / "own.yaml").write_text("platforms: {telegram: {accounts: {helper: {token: 42-secret}}}}")
    with pytest.raises(MalformedConfig) as raised:
        load_with_sources(
            tmp_path, {"PALAVER_CONFIG": str(own), "PALAVER_HOME": "/data"}, known_platforms(), load_factory
        )
    (mistake,) = raised.value.mistakes
    assert "Use a token from @BotFather" in str(mistake)
    assert "42-secret" not in str(mistake)


def test_every_worker_has_the_same_secret_and_another_bot_has_another() -> None:
    first, again, other = (
        TelegramOptions.model_validate({"token": token}).shared_secret for token in (TOKEN, TOKEN, f"{TOKEN}5")
    )
    assert first == again != other
    set_by_hand = TelegramOptions.model_validate({"token": TOKEN, "secret": "kitchen-door"})
    assert set_by_hand.shared_secret.startswith("kitchen")
