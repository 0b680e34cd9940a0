"""Microsoft Teams: a bot of the Bot Framework."""

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion

PLATFORM = Platform(
    name="teams",
    title="Microsoft Teams",
    adapter="palaver.platforms.teams.adapter:TeamsAdapter",
    abilities=frozenset(
        {Ability.THREADS, Ability.EDITS, Ability.FILES_IN, Ability.BUTTONS, Ability.REACTIONS, Ability.TYPING}
    ),
    extras=("teams",),
    needs="`teams` and `web`",
    connection="Microsoft calls it",
    has_mentions=True,
    keeps_slash=True,
    chat_id_pattern=r"(?:a|[0-9]{1,2}):[^:]+|[^:]+",
    example_chat="19:abc@thread.tacv2",
    notes=(
        PlatformNote(
            text=(
                "Teams shows Markdown and code; tables become code. In channels you see only messages that mention "
                "you. You cannot look up people, files or earlier messages here."
            )
        ),
    ),
    guide=SetupGuide(
        before=(
            "Open portal.azure.com and create an Azure Bot (type of app: single tenant).",
            (
                "Under Configuration, note the Microsoft App ID and the tenant; under Manage Password, add a client "
                "secret."
            ),
            "Under Channels, add Microsoft Teams.",
        ),
        questions=[
            SetupQuestion(option="app_id", prompt="Microsoft App ID:"),
            SetupQuestion(option="app_secret", prompt="Client secret, its value (hidden while you type):"),
            SetupQuestion(option="tenant", prompt="Tenant ID of the app:"),
        ],
        after=(
            (
                "Under Configuration of the Azure Bot, enter https://YOUR-ADDRESS/in/teams/{account} as the messaging "
                "endpoint."
            ),
            "Make an app for the bot at dev.teams.microsoft.com, with the scopes that you want, and install it.",
        ),
        owner_prompt="Your own object ID in Microsoft Entra, as alt:ID? You can leave it out and pair later:",
        owner_pattern=r"29:.+|alt:[0-9a-f-]{36}",
        owner_example="alt:4c0bd3c4-8a5e-4e0e-9f0c-0f6a0c3f6a11",
    ),
)
