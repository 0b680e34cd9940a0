"""Mattermost: a bot account on a server of yours."""

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion

PLATFORM = Platform(
    name="mattermost",
    title="Mattermost",
    adapter="palaver.platforms.mattermost.adapter:MattermostAdapter",
    abilities=frozenset(
        {Ability.THREADS, Ability.EDITS, Ability.FILES_IN, Ability.FILES_OUT, Ability.REACTIONS, Ability.TYPING}
    ),
    extras=("mattermost",),
    connection="connects to your server",
    has_mentions=True,
    keeps_slash=True,
    example_chat="q6jtkgy9pjbd8pnqcs1wqfd6mr",
    notes=(
        PlatformNote(
            text=(
                "Mattermost shows Markdown, tables and code included. You cannot look up people, other channels or "
                "earlier messages here: you see only what is sent to you."
            )
        ),
    ),
    guide=SetupGuide(
        before=(
            (
                "On your Mattermost server, a system admin enables bot accounts (System Console, Integrations, Bot "
                "Accounts)."
            ),
            "Open Integrations, Bot Accounts, Add Bot Account, and copy the access token that it shows once.",
            "Add the bot to your team and to the channels that it serves.",
        ),
        questions=[
            SetupQuestion(option="url", prompt="Address of the server, like https://chat.example.org:"),
            SetupQuestion(option="token", prompt="Access token of the bot (hidden while you type):"),
        ],
        after=("Write to the bot or mention it in a channel.",),
        owner_prompt="Your own user id (26 letters and digits; Profile, under your picture, or pair later)?",
        owner_pattern=r"[a-z0-9]{26}",
        owner_example="q6jtkgy9pjbd8pnqcs1wqfd6mr",
    ),
)
