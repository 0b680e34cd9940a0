"""Slack, through Socket Mode and the Web API."""

import re

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion

_USER = re.compile(r"(?:<@)?([UWB][A-Z0-9]{1,30})(?:\|[^>]*)?>?", re.IGNORECASE)


def _canonical_user(text: str) -> str | None:
    found = _USER.fullmatch(text.strip())
    is_name = found and not found[1].isupper() and not any(map(str.isdigit, found[1]))
    return found[1].upper() if found and not is_name else None


PLATFORM = Platform(
    name="slack",
    title="Slack",
    adapter="palaver.platforms.slack.adapter:SlackAdapter",
    abilities=frozenset(
        {
            Ability.THREADS,
            Ability.EDITS,
            Ability.FILES_IN,
            Ability.FILES_OUT,
            Ability.BUTTONS,
            Ability.REACTIONS,
            Ability.TYPING,
        }
    ),
    extras=("slack",),
    connection="connects to Slack (Socket Mode)",
    has_mentions=True,
    mentions_by_id=True,
    has_servers=True,
    keeps_slash=True,
    user_rule=_canonical_user,
    example_user="U024BE7LH",
    notes=(
        PlatformNote(
            text="You can read channels, look up people and pin messages here with the Slack tools.",
            needs=frozenset({"slack"}),
            otherwise=(
                "You cannot read channels, look up people or manage messages here: you see only what is sent to you. "
                "Say so instead of promising it."
            ),
        ),
        PlatformNote(text="Mention a person by writing <@id> with their id."),
    ),
    guide=SetupGuide(
        before=(
            (
                "Open api.slack.com/apps, choose Create New App, From a manifest, pick your workspace and paste the "
                "manifest from docs/slack.md."
            ),
            (
                "Choose Install App, which shows the bot token (xoxb-…), and under Basic Information, App-Level "
                "Tokens, generate a token with the scope connections:write (xapp-…)."
            ),
        ),
        questions=[
            SetupQuestion(
                option="bot_token",
                prompt="Bot token, xoxb-… (hidden while you type), or the environment variable that holds it:",
            ),
            SetupQuestion(
                option="app_token",
                prompt="App-level token, xapp-… (hidden while you type), or the environment variable that holds it:",
            ),
        ],
        after=("Invite the app to a channel by mentioning it there, or write to it under Apps.",),
        owner_prompt="Your own Slack member ID (in your profile: More, Copy member ID)?",
        owner_pattern=r"[UW][A-Z0-9]{5,30}",
        owner_example="U024BE7LH",
    ),
)
