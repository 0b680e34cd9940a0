"""iMessage, through a BlueBubbles server on a Mac."""

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion, mail_address, phone_number


def _canonical_user(text: str) -> str | None:
    return mail_address(text) if "@" in text else phone_number(text)


PLATFORM = Platform(
    name="imessage",
    title="iMessage",
    adapter="palaver.platforms.imessage.adapter:IMessageAdapter",
    abilities=frozenset({Ability.FILES_IN, Ability.FILES_OUT, Ability.TYPING}),
    extras=("imessage",),
    needs="`imessage`, a Mac with BlueBubbles; to be called, also `web`",
    connection="asks BlueBubbles, which can also call it",
    hides_ids=True,
    has_names=False,
    user_rule=_canonical_user,
    example_user="+15551234567",
    example_chat="iMessage;-;+15551234567",
    notes=(
        PlatformNote(
            text="Write short thoughts separated by blank lines; each is sent as its own bubble. No Markdown."
        ),
    ),
    guide=SetupGuide(
        before=(
            (
                "On a Mac, sign in to Messages with an Apple Account of the agent's own: what that account writes is "
                "never answered."
            ),
            "Install BlueBubbles from bluebubbles.app, give it Full Disk Access and set a server password.",
        ),
        questions=[
            SetupQuestion(
                option="url",
                prompt="URL of the BlueBubbles server, like http://mac.local:1234:",
                help="BlueBubbles shows it under Connection.",
            ),
            SetupQuestion(
                option="password", prompt="Server password (hidden while you type), or the variable that holds it:"
            ),
            SetupQuestion(
                option="public_url",
                prompt="URL where the Mac reaches this gateway's web server; empty to ask the Mac for messages:",
                required=False,
            ),
        ],
        after=(
            (
                "Typing, read receipts and inline replies need the private API of BlueBubbles: turn it on there under "
                "Private API."
            ),
            "Everything else works without it.",
        ),
        owner_prompt="Your own iMessage address: the phone number or e-mail address that you write from?",
        owner_pattern=r"\+[0-9]{4,15}|[^@\s]+@[^@\s]+",
        owner_example="+15551234567",
    ),
)
