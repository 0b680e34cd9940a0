"""ntfy: topics on ntfy.sh or a server of yours."""

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion

PLATFORM = Platform(
    name="ntfy",
    title="ntfy",
    adapter="palaver.platforms.ntfy.adapter:NtfyAdapter",
    abilities=frozenset({Ability.FILES_IN, Ability.FILES_OUT, Ability.BUTTONS}),
    extras=("ntfy",),
    connection="subscribes to its topics",
    has_names=False,
    example_chat="helper-7Kx2mP9q",
    notes=(
        PlatformNote(
            text=(
                "Messages here are notifications on a phone: answer in a few short lines. You cannot know who wrote, "
                "as everybody who knows the topic can."
            )
        ),
    ),
    guide=SetupGuide(
        before=(
            (
                "Choose a topic that nobody can guess: on an open server, everybody who knows its name can read and "
                "write there."
            ),
            "Or protect it on a server of yours, and make an access token for the gateway.",
        ),
        questions=[
            SetupQuestion(option="url", prompt="Server:", default="https://ntfy.sh", required=False),
            SetupQuestion(option="topics", prompt="Topic:"),
            SetupQuestion(option="token", prompt="Access token (hidden while you type; optional):", required=False),
        ],
        after=("Subscribe to the topic in the app or on the web page of the server, and write there.",),
        owner_prompt=(
            "Should everybody who can write to the topic be an owner? Then enter its name again, or pair later:"
        ),
        owner_pattern=r"[-_A-Za-z0-9]{1,64}",
        owner_example="helper-7Kx2mP9q",
    ),
)
