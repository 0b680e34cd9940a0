"""Signal, through a signal-cli daemon."""

import re

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion, phone_number

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def _canonical_id(text: str) -> str | None:
    text = text.strip()
    return text.lower() if _UUID.fullmatch(text) else phone_number(text)


PLATFORM = Platform(
    name="signal",
    title="Signal",
    adapter="palaver.platforms.signal.adapter:SignalAdapter",
    abilities=frozenset(
        {Ability.EDITS, Ability.DRAFTS, Ability.FILES_IN, Ability.FILES_OUT, Ability.REACTIONS, Ability.TYPING}
    ),
    extras=("signal",),
    needs="`signal`, and a running signal-cli",
    connection="listens to its signal-cli",
    hides_ids=True,
    has_mentions=True,
    user_rule=_canonical_id,
    example_user="+15550100300",
    chat_rule=_canonical_id,
    example_chat="+15550100300",
    notes=(
        PlatformNote(
            text=(
                "Signal shows bold, italic, strikethrough and code, and links only as URLs. You cannot look up people, "
                "groups or earlier messages here: you see only what is sent to you."
            )
        ),
    ),
    guide=SetupGuide(
        before=(
            "Install signal-cli: Signal has no bots, so Palaver uses an account of its own through that program.",
            (
                "Either link it to a phone that has the account (signal-cli link -n palaver, and "
                "scan the code in Signal under Settings, Linked devices), or register a number that no phone uses "
                "(signal-cli -a NUMBER register)."
            ),
            (
                "Start it and keep it running:\n  signal-cli -a NUMBER daemon --http 127.0.0.1:8080 --receive-mode "
                "on-connection"
            ),
        ),
        questions=[
            SetupQuestion(option="number", prompt="Number of the account, like +15550100200:"),
            SetupQuestion(option="url", prompt="URL of signal-cli:", default="http://127.0.0.1:8080"),
        ],
        after=(
            "Everybody who writes to this number writes to the agent.",
            "Do not use your own number: people would take the agent's answers for yours.",
        ),
        owner_prompt="Your own Signal number, or alt: and your account id if you hide your number?",
        owner_pattern=r"\+[1-9][0-9]{4,14}|alt:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        owner_example="+15550100300",
    ),
)
