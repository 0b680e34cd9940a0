"""LINE: an official account with the Messaging API."""

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion

PLATFORM = Platform(
    name="line",
    title="LINE",
    adapter="palaver.platforms.line.adapter:LineAdapter",
    abilities=frozenset({Ability.FILES_IN, Ability.BUTTONS, Ability.TYPING}),
    extras=("line",),
    needs="`line` and `web`",
    connection="LINE calls it",
    has_mentions=True,
    example_chat="U8e742f61d673b39c7fff3cecb7536ef0",
    notes=(
        PlatformNote(
            text="People read this on a phone, and LINE shows no formatting: write short plain paragraphs, no tables."
        ),
    ),
    guide=SetupGuide(
        before=(
            "Create a LINE official account and enable the Messaging API for it.",
            (
                "Open developers.line.biz/console and its channel: Basic settings shows the channel secret, Messaging "
                "API issues a long-lived channel access token."
            ),
            (
                "In the LINE Official Account Manager, turn off auto-reply and greeting messages, and allow groups if "
                "you want."
            ),
        ),
        questions=[
            SetupQuestion(option="channel_secret", prompt="Channel secret (hidden while you type):"),
            SetupQuestion(option="token", prompt="Channel access token (hidden while you type):"),
        ],
        after=(
            (
                "In the console, under Messaging API, enter https://YOUR-ADDRESS/in/line/{account} as the webhook URL, "
                "turn on Use webhook, and Webhook redelivery: then nothing is lost while the gateway is down."
            ),
        ),
        owner_prompt="Your own LINE user ID (U and 32 digits; shown under Basic settings as Your user ID)?",
        owner_pattern=r"U[0-9a-f]{32}",
        owner_example="U8e742f61d673b39c7fff3cecb7536ef0",
    ),
)
