"""The options of a connection to an IRC network."""

from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr

from palaver.protocols import split_names
from palaver.protocols.options import AccountOptions

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
