"""Telegram, through its Bot API."""

import re

from palaver.protocols import Ability, Platform, SetupGuide, SetupQuestion

_USER = re.compile(r"[^A-Za-z@\s]+")


def _canonical_user(text: str) -> str | None:
    """A user name is no id: it can change hands."""
    text = text.strip()
    return text if _USER.fullmatch(text) else None


PLATFORM = Platform(
    name="telegram",
    title="Telegram",
    adapter="palaver.platforms.telegram.adapter:TelegramAdapter",
    abilities=frozenset(
        {
            Ability.THREADS,
            Ability.EDITS,
            Ability.FILES_IN,
            Ability.FILES_OUT,
            Ability.VOICE,
            Ability.BUTTONS,
            Ability.REACTIONS,
            Ability.TYPING,
            Ability.MENU,
        }
    ),
    extras=("telegram",),
    needs="`telegram`; for its mode `webhook` also `web`",
    connection="asks Telegram for updates, or Telegram calls it",
    hides_ids=True,
    has_mentions=True,
    user_rule=_canonical_user,
    example_user="7",
    guide=SetupGuide(
        before=(
            "In Telegram, open a chat with @BotFather and send /newbot.",
            "Choose a name, then a username that ends in bot.",
            "BotFather answers with the token of your new bot, like 123456:ABC-DEF1234.",
        ),
        questions=[
            SetupQuestion(
                option="token", prompt="Token (hidden while you type), or the environment variable that holds it:"
            ),
        ],
        after=(
            "In Telegram, write to your bot.",
            (
                "Only for groups: there a bot sees commands, replies to its messages and messages that mention it. To "
                "let it see everything, send /setprivacy to @BotFather, choose the bot, then Disable, and add it again."
            ),
        ),
        owner_prompt="Your own Telegram user id (a number, not your @name)?",
        owner_pattern=r"[1-9][0-9]{0,19}",
        owner_example="123456789",
    ),
)
