"""The options of an XMPP account."""

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from palaver.platforms.xmpp import JID
from palaver.protocols import is_loopback, split_names
from palaver.protocols.options import AccountOptions


def _check_jid(text: str) -> str:
    if not re.fullmatch(JID, text):
        raise ValueError("an address with one @ and no resource")
    return text.lower()


Jid = Annotated[str, AfterValidator(_check_jid)]


class XmppOptions(AccountOptions):
    jid: Jid = Field(description="The address of the bot.", examples=["helper@example.org"])
    password: SecretStr = Field(min_length=1, description="The password of its account.")
    rooms: Annotated[list[Jid], BeforeValidator(split_names)] = Field(
        default_factory=list[str],
        max_length=50,
        description="The rooms that it enters.",
        examples=["[dev@rooms.example.org]"],
    )
    nick: str | None = Field(
        default=None, min_length=1, max_length=100, description="Its name in rooms; by default that of its address."
    )
    host: str | None = Field(
        default=None,
        pattern=r"^\S+$",
        description="The server, if its DNS records do not name it. Needs no TLS on loopback.",
        examples=["xmpp.example.org"],
    )
    port: int = Field(default=5222, ge=1, le=65535, description="Its port, if there is a host.")
    file_hosts: Annotated[list[str], BeforeValidator(split_names)] = Field(
        default_factory=list[str],
        description="Hosts from which it fetches files with HTTPS, besides the servers of the people; or URLs.",
    )
    threads: bool = Field(default=True, description="Whether a thread is a conversation of its own.")

    @property
    def domain(self) -> str:
        return self.jid.partition("@")[2]

    @property
    def room_nick(self) -> str:
        return self.nick or self.jid.partition("@")[0]

    @property
    def is_local(self) -> bool:
        """Whether what we send stays on this machine, and can do without TLS."""
        return self.host is not None and is_loopback(self.host)
