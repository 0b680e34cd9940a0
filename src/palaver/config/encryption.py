"""Encryption at rest: read your key."""

from palaver.config.secrets import read_secret
from palaver.model.errors import StoreError
from palaver.protocols.installation import install_line
from palaver.settings.gateway import EncryptionConfig

SERVICE = "palaver"
"""The name of Palaver in the keyring of the system."""


def read_key_text(encryption: EncryptionConfig) -> str | None:
    """Return your key; None if nothing is encrypted. Raises BadArgument or StoreError if it cannot be read."""
    if encryption.key_file:
        return read_secret(encryption.key_file)
    if encryption.key:
        return encryption.key.get_secret_value()
    return _read_keyring(encryption.keyring) if encryption.keyring else None


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
