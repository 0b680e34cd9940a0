"""Encryption at rest: where your key is."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from palaver.config.secrets import read_secret
from palaver.config.types import Secret, Section, Syntax, as_pydantic_error
from palaver.model.errors import BadArgument, StoreError
from palaver.protocols.installation import install_line

SERVICE = "palaver"
"""The name of Palaver in the keyring of the system."""


class EncryptionConfig(Section):
    key_file: Annotated[Path | None, Syntax("a file, absolute or relative to this file", "~/.secrets/palaver.key")] = (
        Field(default=None, description="Encrypt what is stored, with the key in this file.")
    )
    key: Annotated[Secret | None, Syntax("the key, from an environment variable", "${PALAVER_KEY}")] = Field(
        default=None, description="Encrypt what is stored, with this key."
    )
    keyring: Annotated[str | None, Syntax("the name of the entry", "main")] = Field(
        default=None, min_length=1, description="Encrypt what is stored, with the key in this entry of your keyring."
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in ("key_file", "key", "keyring") if getattr(self, name)]
        if len(given) > 1:
            raise as_pydantic_error(
                BadArgument(
                    "The key cannot be in",
                    found=" and ".join(given),
                    allowed="one place",
                    example=given[0],
                )
            )
        return self

    @property
    def is_on(self) -> bool:
        return bool(self.key_file or self.key or self.keyring)

    def read_key(self) -> str | None:
        """Return your key; None if nothing is encrypted. Raises BadArgument or StoreError if it cannot be read."""
        if self.key_file:
            return read_secret(self.key_file)
        if self.key:
            return self.key.get_secret_value()
        return _read_keyring(self.keyring) if self.keyring else None


def _read_keyring(entry: str) -> str:
    try:
        import keyring  # noqa: PLC0415 - an extra
        from keyring.errors import KeyringError  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise StoreError(f"the keyring needs a library: {install_line('keyring')}") from error
    try:
        found = keyring.get_password(SERVICE, entry)
    except KeyringError as error:
        raise StoreError(f"the keyring cannot be read: {error}") from error
    if not found:
        raise StoreError(f"the keyring has no entry {entry}: run keyring set {SERVICE} {entry}")
    return found
