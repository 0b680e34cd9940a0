"""Google Chat: an HTTP app of a Google Cloud project."""

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion

PLATFORM = Platform(
    name="googlechat",
    title="Google Chat",
    adapter="palaver.platforms.googlechat.adapter:GoogleChatAdapter",
    abilities=frozenset({Ability.THREADS, Ability.EDITS, Ability.FILES_IN, Ability.BUTTONS}),
    extras=("googlechat",),
    needs="`googlechat` and `web`",
    connection="Google calls it",
    has_mentions=True,
    keeps_slash=True,
    example_chat="spaces/AAAAabcd",
    notes=(
        PlatformNote(
            text=(
                "Google Chat shows bold, italic, code and links; no tables. In spaces you see only messages that "
                "mention you. You cannot look up people or earlier messages here."
            )
        ),
    ),
    guide=SetupGuide(
        before=(
            "Open console.cloud.google.com, make a project and enable the Google Chat API.",
            (
                "Under IAM & Admin, Service Accounts, create a service account and a JSON key for it, and store the "
                "file where only you can read it."
            ),
            "The dashboard of the project shows the project number.",
        ),
        questions=[
            SetupQuestion(option="project_number", prompt="Project number:"),
            SetupQuestion(
                option="service_account",
                prompt="Key of the service account, all in one line (hidden while you type):",
                help="Or name its file: palaver setup googlechat --set service_account_file=FILE",
            ),
        ],
        after=(
            (
                "Under Google Chat API, Configuration, turn off Build this Chat app as a Workspace add-on, choose HTTP "
                "endpoint URL and enter https://YOUR-ADDRESS/in/googlechat/{account}; as the authentication audience, "
                "choose Project Number."
            ),
            "Add your domain under Visibility.",
        ),
        owner_prompt="Your own id, users/ and digits? You can leave it out and pair later:",
        owner_pattern=r"users/[0-9]+",
        owner_example="users/107946847022116401880",
    ),
)
