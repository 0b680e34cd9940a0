"""The options of a Slack app."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import check_secret, check_url
from palaver.protocols.options import AccountOptions

_BOT_TOKEN = check_secret(
    "xoxb-[A-Za-z0-9-]{1,250}", "a bot token that begins with xoxb-, from Install App at api.slack.com/apps"
)
_APP_TOKEN = check_secret(
    "xapp-[A-Za-z0-9-]{1,250}",
    "an app-level token that begins with xapp-, from Basic Information at api.slack.com/apps",
)
Url = Annotated[str, AfterValidator(check_url("a URL, like https://slack.com/api"))]


class SlackOptions(AccountOptions):
    bot_token: Annotated[SecretStr, AfterValidator(_BOT_TOKEN)] = Field(
        description="The bot token, `xoxb-…`, from *Install App*."
    )
    app_token: Annotated[SecretStr, AfterValidator(_APP_TOKEN)] = Field(
        description="The app-level token, `xapp-…`, with the scope `connections:write`."
    )
    reply_in_thread: bool = Field(
        default=False,
        description="Answer a message in a channel in a thread of its own, which is a conversation.",
    )
    api_url: Url = Field(default="https://slack.com/api", description="URL of the Web API.")
