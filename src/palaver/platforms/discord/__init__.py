"""Discord, through its gateway and HTTP API."""

import re

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion

_USER = re.compile(r"(?:<@!?)?([0-9]{1,20})>?")


def _canonical_user(text: str) -> str | None:
    found = _USER.fullmatch(text.strip())
    return found[1] if found else None


PLATFORM = Platform(
    name="discord",
    title="Discord",
    adapter="palaver.platforms.discord.adapter:DiscordAdapter",
    abilities=frozenset(
        {
            Ability.THREADS,
            Ability.EDITS,
            Ability.FILES_IN,
            Ability.FILES_OUT,
            Ability.BUTTONS,
            Ability.REACTIONS,
            Ability.TYPING,
            Ability.MENU,
        }
    ),
    extras=("discord",),
    connection="connects to Discord's gateway",
    has_mentions=True,
    mentions_by_id=True,
    has_servers=True,
    keeps_slash=True,
    user_rule=_canonical_user,
    example_user="80351110224678912",
    notes=(
        PlatformNote(
            text="You can act here with the Discord tools; they take the ids given above.",
            needs=frozenset({"discord"}),
            otherwise=(
                "You cannot read other channels, manage the server or look up members: you see only what is sent to "
                "you. Say so instead of promising it."
            ),
        ),
        PlatformNote(text="Mention a person by writing <@id> with their id."),
    ),
    guide=SetupGuide(
        before=(
            "Open discord.com/developers/applications and choose New Application.",
            "On its page Bot, press Reset Token and copy the token; below, turn on Message Content Intent.",
            (
                "On its page OAuth2, choose the scopes bot and applications.commands and the permissions View "
                "Channels, Send Messages, Send Messages in Threads, Create Public Threads, Attach Files and Read "
                "Message History."
            ),
            "Open the URL shown there to add the bot to a server.",
        ),
        questions=[
            SetupQuestion(
                option="token", prompt="Token (hidden while you type), or the environment variable that holds it:"
            ),
        ],
        after=("To write to the bot alone, open its profile in your server and choose Message.",),
        owner_prompt="Your own Discord user id (Settings, Advanced, Developer Mode; then your profile, Copy User ID)?",
        owner_pattern=r"[1-9][0-9]{0,19}",
        owner_example="80351110224678912",
    ),
)
