"""XMPP (Jabber): an account on any server, in direct chats and rooms."""

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion, mail_address

JID = r"[^\s@/\"&'<>:]+@[^\s@/\"&'<>:]+"


def _canonical_id(text: str) -> str | None:
    """A bare JID, which ignores case."""
    bare = text.strip().removeprefix("xmpp:").partition("/")[0].lower()
    return bare if mail_address(bare) == bare else None


PLATFORM = Platform(
    name="xmpp",
    title="XMPP",
    adapter="palaver.platforms.xmpp.adapter:XmppAdapter",
    abilities=frozenset({Ability.THREADS, Ability.EDITS, Ability.FILES_IN, Ability.FILES_OUT, Ability.TYPING}),
    extras=("xmpp",),
    connection="connects to its server",
    has_mentions=True,
    keeps_slash=True,
    user_rule=_canonical_id,
    example_user="ann@example.org",
    chat_rule=_canonical_id,
    example_chat="ann@example.org",
    notes=(
        PlatformNote(
            text=(
                "XMPP clients show bold, italic, code and quotes; no tables, and links only as URLs. You cannot look "
                "up people, rooms or earlier messages here: you see only what is sent to you."
            )
        ),
    ),
    guide=SetupGuide(
        before=(
            (
                "Make an account for the bot on an XMPP server: with any client, or as an administrator with "
                "`prosodyctl adduser` or `ejabberdctl register`."
            ),
            "If only members can enter a room, make it a member.",
        ),
        questions=[
            SetupQuestion(option="jid", prompt="Address of the bot, like helper@example.org:"),
            SetupQuestion(option="password", prompt="Its password (hidden while you type):"),
            SetupQuestion(option="rooms", prompt="Rooms, like dev@rooms.example.org (optional):", required=False),
        ],
        after=("Write to the bot, or write its nick and a colon in a room.",),
        owner_prompt="Your own address?",
        owner_pattern=JID,
        owner_example="ann@example.org",
    ),
)
