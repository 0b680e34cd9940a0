"""The options of a mailbox."""

from enum import StrEnum
from typing import Self

from pydantic import Field, SecretStr, field_validator, model_validator

from palaver.platforms.email import ADDRESS
from palaver.protocols import is_loopback
from palaver.protocols.options import AccountOptions


class Encryption(StrEnum):
    TLS = "tls"
    STARTTLS = "starttls"
    NONE = "none"


class Unverified(StrEnum):
    """What happens to a mail whose sender the server could not verify."""

    REFUSE = "refuse"
    STRANGER = "stranger"


class EmailOptions(AccountOptions):
    address: str = Field(description="The address of the mailbox.")
    password: SecretStr = Field(description="Its password, or an app password.")
    username: str = Field(default="", description="The name to log in with; by default the address.")
    name: str = Field(default="", description="The name that people see as the sender.")
    aliases: tuple[str, ...] = Field(default=(), description="Other addresses of the mailbox.")
    imap_host: str = Field(min_length=1, description="The IMAP server.")
    imap_port: int = Field(default=993, ge=1, le=65535, description="Its port.")
    imap_encryption: Encryption = Field(default=Encryption.TLS, description="`tls`, `starttls`, or `none` on loopback.")
    smtp_host: str = Field(min_length=1, description="The SMTP server.")
    smtp_port: int = Field(default=465, ge=1, le=65535, description="Its port.")
    smtp_encryption: Encryption = Field(default=Encryption.TLS, description="`tls`, `starttls`, or `none` on loopback.")
    folder: str = Field(default="INBOX", min_length=1, description="The folder to read.")
    auth_server: str = Field(
        min_length=1, description="The name of your mail server in the header Authentication-Results."
    )
    unverified: Unverified = Field(
        default=Unverified.REFUSE,
        description="What to do with unverified senders: `refuse`, or treat each as a `stranger`.",
    )
    max_bytes: int = Field(default=25_000_000, ge=1, description="The largest mail that is read whole.")

    @field_validator("address")
    @classmethod
    def _check_address(cls, address: str) -> str:
        if not ADDRESS.fullmatch(address.lower()):
            raise ValueError("an e-mail address, like helper@example.org")
        return address.lower()

    @field_validator("aliases")
    @classmethod
    def _check_aliases(cls, aliases: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(cls._check_address(alias) for alias in aliases)

    @model_validator(mode="after")
    def _check_encryption(self) -> Self:
        plain = {
            host
            for host, how in ((self.imap_host, self.imap_encryption), (self.smtp_host, self.smtp_encryption))
            if how is Encryption.NONE
        }
        if not all(map(is_loopback, plain)):
            raise ValueError("tls or starttls: the password would be readable on the way to another machine")
        return self

    @property
    def login(self) -> str:
        return self.username or self.address

    @property
    def own(self) -> frozenset[str]:
        """Every address of the mailbox."""
        return frozenset((self.address, *self.aliases))
