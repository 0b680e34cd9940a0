"""What a person is told and asked who has an account for the gateway on Matrix."""

from nio.crypto import ENCRYPTION_ENABLED

from palaver.ports.guide import Guide, Question

__all__ = ["GUIDE"]

_KEYS = Question(
    option="keys",
    asks="The folder for the keys of encrypted rooms:",
    help="Without these keys the bot cannot read what was written to it there: keep the folder with your backups.",
    usual="{folder}/keys/matrix-{account}-rooms",
)

GUIDE = Guide(
    before=(
        "Register an account for the gateway on your homeserver, as for a person: with Element, or with the command "
        "register_new_matrix_user where the server is yours. Do not use your own account."
    ),
    questions=[
        Question(option="homeserver", asks="The address of the homeserver, like https://matrix.example.org:"),
        Question(option="user_id", asks="The whole id of the account, like @helper:example.org:"),
        Question(
            option="access_token",
            asks="An access token of it, not shown while you type; nothing, to give its password:",
            help="In Element, logged in as the account: Settings, Help & About, Advanced. Then close it, logged in. "
            "Where the homeserver has the Matrix Authentication Service, as matrix.org has, such a token ends within "
            "hours: give the password there.",
            needed=False,
        ),
        Question(option="password", asks="Its password, not shown while you type:", unless="access_token"),
        *([_KEYS] if ENCRYPTION_ENABLED else []),
    ],
    after=(
        "Invite it into a room, or begin a direct chat with it. It takes invitations from its own homeserver, unless "
        "the option invites says otherwise."
    ),
    owner="Your own id on Matrix, like @you:example.org?",
    owner_form=r"@[^:\s]+:\S+",
    owner_example="@you:example.org",
)
