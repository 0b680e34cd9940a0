"""Yuanbao: a bot of Tencent's assistant app, over its WebSocket."""

from palaver.model.prompt import SEND_MESSAGE
from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion

PLATFORM = Platform(
    name="yuanbao",
    title="Yuanbao",
    adapter="palaver.platforms.yuanbao.adapter:YuanbaoAdapter",
    abilities=frozenset({Ability.FILES_IN, Ability.FILES_OUT, Ability.TYPING}),
    extras=("yuanbao",),
    connection="connects to Yuanbao",
    has_mentions=True,
    mentions_by_id=True,
    example_chat="group/123456",
    notes=(
        PlatformNote(
            text=(
                "Private messages reach one person; in a group everybody can read what you write. To answer somebody "
                "privately, use `send_message` with the target yuanbao:ID and their id."
            ),
            needs=frozenset({SEND_MESSAGE}),
            otherwise=(
                "Private messages reach one person; in a group everybody can read what you write. "
                "To answer somebody privately, ask them to write to you directly."
            ),
        ),
        PlatformNote(text="Mention a person by writing <@id> with their id."),
    ),
    guide=SetupGuide(
        before=(
            "In the Yuanbao app, create a bot.",
            "Its settings show an App ID (also called AppKey) and an App Secret.",
        ),
        questions=[
            SetupQuestion(option="app_key", prompt="App ID:"),
            SetupQuestion(option="app_secret", prompt="App Secret (hidden while you type):"),
        ],
        after=(
            "Write to the bot.",
            "In a group, mention it.",
        ),
        owner_prompt="Your own Yuanbao id? You can leave it out and pair later:",
    ),
)
