"""Feishu and Lark: an app with a bot, its event callbacks and its messages API."""

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion

PLATFORM = Platform(
    name="feishu",
    title="Feishu",
    adapter="palaver.platforms.feishu.adapter:FeishuAdapter",
    abilities=frozenset(
        {Ability.THREADS, Ability.EDITS, Ability.FILES_IN, Ability.FILES_OUT, Ability.BUTTONS, Ability.REACTIONS}
    ),
    extras=("feishu",),
    needs="`feishu` and `web`; for its mode `stream` only `feishu`",
    connection="Feishu or Lark calls it, or it connects to Feishu",
    has_mentions=True,
    example_chat="oc_5ad11d72b830411d72b836c20",
    notes=(
        PlatformNote(
            text=(
                "Your messages are cards that show Markdown. You cannot look up people, documents or earlier messages "
                "here: you see only what is sent to you."
            )
        ),
    ),
    guide=SetupGuide(
        before=(
            (
                "Open open.feishu.cn/app (for Lark: open.larksuite.com/app), create a custom app and add the bot "
                "capability."
            ),
            (
                "Under Permissions, add im:message, im:message:send_as_bot, im:resource, im:chat:readonly and "
                "contact:user.base:readonly."
            ),
            "Under Events & Callbacks, Encryption strategy, set an Encrypt Key.",
            "Publish a version.",
        ),
        questions=[
            SetupQuestion(option="app_id", prompt="App ID, like cli_a1b2c3:", help="Under Credentials & Basic Info."),
            SetupQuestion(option="app_secret", prompt="App Secret (hidden while you type):"),
            SetupQuestion(
                option="mode",
                prompt="How messages come, http or stream:",
                help="With http, Feishu calls a public address of yours. With stream, the gateway connects to Feishu.",
                default="http",
            ),
            SetupQuestion(
                option="encrypt_key", prompt="Encrypt Key (hidden while you type; not for stream):", required=False
            ),
            SetupQuestion(
                option="verification_token",
                prompt="Verification Token (hidden while you type; optional):",
                required=False,
            ),
            SetupQuestion(option="api_url", prompt="API:", default="https://open.feishu.cn", required=False),
        ],
        after=(
            (
                "Under Events & Callbacks, enter https://YOUR-ADDRESS/in/feishu/{account} as the request URL of the "
                "events and of the callbacks; for the mode stream, choose the long connection for both."
            ),
            (
                "Add the events im.message.receive_v1, im.message.recalled_v1, im.message.reaction.created_v1 and "
                "im.message.reaction.deleted_v1 and the callback card.action.trigger, and publish another version."
            ),
        ),
        owner_prompt="Your own Feishu id, ou_… or alt:on_…? You can leave it out and pair later:",
        owner_pattern=r"ou_[0-9a-z]+|alt:on_[0-9a-z]+",
        owner_example="ou_7d8a6e6df7621556ce0d21922b676706",
    ),
)
