"""Matrix, through matrix-nio."""

import re
from importlib.util import find_spec

from palaver.model.prompt import SEND_MESSAGE
from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion

_KEYS = SetupQuestion(
    option="keys",
    prompt="Folder for the keys of encrypted rooms:",
    help="Without these keys the bot cannot read encrypted messages. Back up the folder.",
    default="{folder}/keys/matrix-{account}-rooms",
)


_USER = re.compile(r"@[^\s:]+:[^\s]+")


def _canonical_user(text: str) -> str | None:
    text = text.strip()
    if not _USER.fullmatch(text):
        return None
    local, _, server = text.partition(":")
    return f"{local}:{server.lower()}"


PLATFORM = Platform(
    name="matrix",
    title="Matrix",
    adapter="palaver.platforms.matrix.adapter:MatrixAdapter",
    abilities=frozenset(
        {Ability.THREADS, Ability.EDITS, Ability.FILES_IN, Ability.FILES_OUT, Ability.REACTIONS, Ability.TYPING}
    ),
    extras=("matrix", "matrix-encryption"),
    connection="asks its homeserver",
    has_mentions=True,
    keeps_slash=True,
    user_rule=_canonical_user,
    example_user="@ann:example.org",
    chat_id_pattern=r"[!#@][^:%]*:[^:$]+(?::[0-9]{1,5})?|(?:[!#@]|%21|%23|%40)[^:]*",
    example_chat="!room:example.org",
    notes=(
        PlatformNote(
            text="Stay in this room: you cannot read any other, and can write elsewhere only with `send_message`.",
            needs=frozenset({SEND_MESSAGE}),
            otherwise="Stay in this room: you cannot read or write in any other.",
        ),
    ),
    guide=SetupGuide(
        before=(
            (
                "Register an account for the gateway on your homeserver, with Element or, on your own server, with the "
                "command register_new_matrix_user."
            ),
            "Do not use your own account.",
        ),
        questions=[
            SetupQuestion(option="homeserver", prompt="Homeserver URL, for example https://matrix.example.org:"),
            SetupQuestion(option="user_id", prompt="Full user id of the account, for example @helper:example.org:"),
            SetupQuestion(
                option="access_token",
                prompt="Access token (hidden while you type; leave empty to use a password):",
                help="In Element, log in as the account and open Settings, Help & About, Advanced. Close it without "
                "logging out. On homeservers with the Matrix Authentication Service, such as matrix.org, tokens expire "
                "within hours: use the password there.",
                required=False,
            ),
            SetupQuestion(option="password", prompt="Password (hidden while you type):", unless="access_token"),
            *([_KEYS] if find_spec("vodozemac") else []),
        ],
        after=(
            "Invite it to a room, or start a direct chat with it.",
            "By default it accepts invitations from its own homeserver only; change that with the invites option.",
        ),
        owner_prompt="Your own Matrix id, for example @you:example.org?",
        owner_pattern=r"@[^:\s]+:\S+",
        owner_example="@you:example.org",
    ),
)
