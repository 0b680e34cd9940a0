"""IRC: one connection to one network."""

import re

from palaver.protocols import Platform, PlatformNote, SetupGuide, SetupQuestion

_NICK = re.compile(r"[^\s!@,:#&+][^\s!@,:]*")


def lower(name: str) -> str:
    """Return a name as we compare it. Only ASCII: what else is equal differs between networks."""
    return "".join(chr(ord(each) + 32) if "A" <= each <= "Z" else each for each in name)


def _canonical_user(text: str) -> str | None:
    nick = text.strip()
    return lower(nick) if _NICK.fullmatch(nick) else None


PLATFORM = Platform(
    name="irc",
    title="IRC",
    adapter="palaver.platforms.irc.adapter:IrcAdapter",
    extras=("irc",),
    connection="connects to a network",
    has_mentions=True,
    has_servers=True,
    keeps_slash=True,
    keeps_history=False,
    has_message_ids=False,
    has_names=False,
    user_rule=_canonical_user,
    example_user="ann",
    example_chat="#palaver",
    notes=(
        PlatformNote(
            text=(
                "Each line you write is a message of its own on IRC: answer in one or two short lines, without tables, "
                "lists or code blocks. Anybody can take a nick, so a nick proves nothing."
            )
        ),
    ),
    guide=SetupGuide(
        before=(
            (
                "Choose a nick for the bot, and register it with the services of the network (NickServ) if there are "
                "any: the bot then logs in with SASL, and keeps its nick."
            ),
        ),
        questions=[
            SetupQuestion(option="server", prompt="Server, like irc.libera.chat:"),
            SetupQuestion(option="nick", prompt="Nick of the bot:"),
            SetupQuestion(option="channels", prompt="Channels, like #one,#two (optional):", required=False),
            SetupQuestion(option="password", prompt="Password of its account (hidden while you type):", required=False),
        ],
        after=("Write to the bot, or write its nick and a colon in a channel.",),
        owner_prompt="Your own account with the services, as alt:NAME? Anybody can take a nick, so do not enter one:",
        owner_pattern=r"alt:\S+",
        owner_example="alt:ann",
    ),
)
