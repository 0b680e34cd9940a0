"""DingTalk: the robot of an internal app of a company."""

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion

PLATFORM = Platform(
    name="dingtalk",
    title="DingTalk",
    adapter="palaver.platforms.dingtalk.adapter:DingTalkAdapter",
    abilities=frozenset({Ability.FILES_IN, Ability.FILES_OUT}),
    extras=("dingtalk",),
    needs="`dingtalk`; for its mode `http` also `web`",
    connection="connects to DingTalk, or DingTalk calls it",
    has_mentions=True,
    example_chat="manager4220",
    notes=(
        PlatformNote(
            text=(
                "DingTalk shows bold, italic, lists and links; no tables and no code. In groups you see only messages "
                "that mention you. You cannot look up people or earlier messages here."
            )
        ),
    ),
    guide=SetupGuide(
        before=(
            "Open open-dev.dingtalk.com, create an internal app and add a robot to it.",
            "Copy the Client ID (AppKey) and the Client Secret (AppSecret).",
            "Under Permissions, allow the app to send messages as a robot.",
        ),
        questions=[
            SetupQuestion(option="client_id", prompt="Client ID (AppKey), like ding1a2b3c:"),
            SetupQuestion(option="client_secret", prompt="Client Secret (hidden while you type):"),
            SetupQuestion(
                option="mode",
                prompt="How messages come, stream or http:",
                help=(
                    "With http, DingTalk calls a public address of yours. It does not sign what it sends: prefer "
                    "stream."
                ),
                default="stream",
            ),
        ],
        after=(
            (
                "In the robot's settings choose the Stream mode (for the mode http the HTTP mode, and enter "
                "https://YOUR-ADDRESS/in/dingtalk/{account}), and publish the robot."
            ),
        ),
        owner_prompt="Your own user id in DingTalk? An administrator sees it in the contacts:",
    ),
)
