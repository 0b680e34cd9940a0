"""WeChat official accounts, and WeCom apps: their callbacks and messages are alike."""

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion

_TOKEN = SetupQuestion(option="token", prompt="Token of the callback (hidden while you type):")
_KEY = SetupQuestion(option="encoding_aes_key", prompt="EncodingAESKey (hidden while you type):")

WECHAT = Platform(
    name="wechat",
    title="WeChat",
    adapter="palaver.platforms.wechat.adapter:WeChatAdapter",
    abilities=frozenset({Ability.FILES_IN, Ability.FILES_OUT, Ability.VOICE, Ability.BUTTONS, Ability.TYPING}),
    extras=("wechat",),
    needs="`wechat` and `web`",
    connection="WeChat calls it",
    has_names=False,
    example_chat="oyORnuP8q7ou2gfYjqLzSIWZf0rs",
    notes=(
        PlatformNote(
            text=(
                "People read this in WeChat, which shows no formatting: write short plain text. You can answer people, "
                "but not write to them first, and you cannot look them up."
            )
        ),
    ),
    guide=SetupGuide(
        before=(
            "Open mp.weixin.qq.com.",
            (
                "Under Settings & Development, Development Interface Management, copy the AppID and the AppSecret, and "
                "add the address of this machine to the IP whitelist."
            ),
            (
                "Under Server Configuration choose a Token, an EncodingAESKey and the security mode, but save that "
                "only after this setup."
            ),
        ),
        questions=[
            SetupQuestion(option="app_id", prompt="AppID, like wx1234567890abcdef:"),
            SetupQuestion(option="app_secret", prompt="AppSecret (hidden while you type):"),
            _TOKEN,
            _KEY,
            SetupQuestion(
                option="passive",
                prompt="Is the account unverified, so that it can only answer at once? (true or false)",
                default="false",
            ),
        ],
        after=(
            (
                "Enter https://YOUR-ADDRESS/in/wechat/{account} under Server Configuration, in the security mode, "
                "and enable it."
            ),
        ),
        owner_prompt="Your own OpenID in this account? You can leave it out and pair later:",
    ),
)

WECOM = Platform(
    name="wecom",
    title="WeCom",
    adapter="palaver.platforms.wechat.wecom:WeComAdapter",
    abilities=frozenset({Ability.FILES_IN, Ability.FILES_OUT}),
    extras=("wecom",),
    needs="`wecom` and `web`",
    connection="WeCom calls it",
    example_chat="zhangsan",
    notes=(
        PlatformNote(
            text=(
                "WeCom shows bold text, links and code; no tables. You cannot look up members or earlier messages here."
            )
        ),
    ),
    guide=SetupGuide(
        before=(
            "Open work.weixin.qq.com.",
            "Under My Company copy the company ID.",
            (
                "Under App Management create an app and copy its AgentId and Secret, and add the address of this "
                "machine to its trusted IPs."
            ),
            (
                "Under Receive Messages, Set API Receive, generate a Token and an EncodingAESKey, but save that only "
                "after this setup."
            ),
        ),
        questions=[
            SetupQuestion(option="corp_id", prompt="Company ID, like ww1234567890abcdef:"),
            SetupQuestion(option="agent_id", prompt="AgentId, like 1000002:"),
            SetupQuestion(option="secret", prompt="Secret of the app (hidden while you type):"),
            _TOKEN,
            _KEY,
        ],
        after=(
            "Enter https://YOUR-ADDRESS/in/wecom/{account} under Receive Messages and save.",
            "WeCom asks the gateway at once.",
        ),
        owner_prompt="Your own WeCom user id? An administrator sees it in the contacts as the account:",
    ),
)
