"""The options of a connection to an IRC network."""

from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr

from palaver.protocols import SetupGuide, SetupQuestion, split_names
from palaver.protocols.options import AccountOptions

GUIDE = SetupGuide(
    before=(
        (
            "Choose a nick for the bot, and register it with the services of the network (NickServ) if there are any: "
            "the bot then logs in with SASL, and keeps its nick."
        ),
    ),
    questions=[
        SetupQuestion(option="server", prompt="Server, like irc.libera.chat:"),
        SetupQuestion(option="nick", prompt="Nick of the bot:"),
        SetupQuestion(option="channels", prompt="Channels, like #one,#two (optional):", required=False),
        SetupQuestion(option="password", prompt="Password of its account (hidden while you type):", required=False),
    ],
    after=("Write to the bot, or write its nick and a colon in a channel.",),
    owner_prompt="Your own account with the services, as alt:NAME? Anybody can take a nick, so do not enter one:",
    owner_pattern=r"alt:\S+",
    owner_example="alt:ann",
)


Channel = Annotated[str, Field(pattern=r"^[#&+!][^\s,:\x00\x07]{1,63}$")]


class IrcOptions(AccountOptions):
    server: str = Field(pattern=r"^[0-9A-Za-z.:-]+$", description="The server.")
    nick: str = Field(pattern=r"^[A-Za-z\[\]\\`_^{|}][A-Za-z0-9\[\]\\`_^{|}-]{0,29}$", description="The bot's nick.")
    channels: Annotated[list[Channel], BeforeValidator(split_names)] = Field(
        default_factory=list[str], max_length=50, description="The channels that it joins."
    )
    password: SecretStr | None = Field(default=None, description="The password of its account, for SASL.")
    account: str | None = Field(default=None, pattern=r"^\S+$", description="Its account, if that is not its nick.")
    server_password: SecretStr | None = Field(default=None, description="The password of the server, if it has one.")
    port: int = Field(default=6697, ge=1, le=65535, description="The port.")
    tls: bool = Field(default=True, description="Whether to use TLS.")
    network: str | None = Field(default=None, pattern=r"^\S+$", description="A name for the network, in targets.")
