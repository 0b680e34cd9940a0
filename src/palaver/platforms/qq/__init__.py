"""QQ: an official bot, in groups and alone with people."""

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion

PLATFORM = Platform(
    name="qq",
    title="QQ",
    adapter="palaver.platforms.qq.adapter:QqAdapter",
    abilities=frozenset({Ability.FILES_IN, Ability.FILES_OUT}),
    extras=("qq",),
    needs="`qq` and `web`",
    connection="QQ calls it",
    has_mentions=True,
    has_names=False,
    example_chat="group/A1B2C3",
    notes=(
        PlatformNote(
            text=(
                "QQ shows plain text, and may reject messages with web addresses. In groups you see only messages that "
                "mention you. You can answer, five times for each message, but not write first."
            )
        ),
    ),
    guide=SetupGuide(
        before=(
            "Open q.qq.com and create a bot.",
            (
                "Under Development Settings copy the AppID and the AppSecret, and add the address of this machine to "
                "the IP whitelist."
            ),
        ),
        questions=[
            SetupQuestion(option="app_id", prompt="AppID (digits):"),
            SetupQuestion(option="app_secret", prompt="AppSecret (hidden while you type):"),
        ],
        after=(
            (
                "Under Callback Settings enter https://YOUR-ADDRESS/in/qq/{account}, on port 80, 443, 8080 or 8443, "
                "and choose the events C2C_MESSAGE_CREATE and GROUP_AT_MESSAGE_CREATE."
            ),
        ),
        owner_prompt="Your own OpenID for this bot? You can leave it out and pair later:",
    ),
)
