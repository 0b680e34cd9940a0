"""Open the keys of a configured store."""

from pathlib import Path
from typing import TYPE_CHECKING

from palaver.config.encryption import read_key_text
from palaver.config.model import Config
from palaver.db.cipher import KEYS, is_encrypted
from palaver.model.errors import StoreError
from palaver.protocols.installation import install_line
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.encryption.contents import PLAIN, has_sealed
from palaver.store.opening import refuse_other_encryption, sqlite_path

if TYPE_CHECKING:
    from palaver.store.encryption.vault import Vault


def read_key(config: Config) -> bytes | None:
    """Return your key; None if nothing is encrypted."""
    text = read_key_text(config.encryption)
    if text is None:
        return None
    try:
        from palaver.store.encryption.vault import parse_key  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise StoreError(f"encryption is not installed: {install_line('encryption')}") from error
    return parse_key(text)


def keys_file(config: Config) -> Path:
    return config.data_dir / KEYS


def find_vault(config: Config) -> "Vault | None":
    """Open the keys of a store, and make them for a new one; None if nothing is encrypted.

    Raises StoreError if the store is not encrypted though that is configured, or the other way round.
    """
    key = read_key(config)
    if key is None:
        if sqlite_path(config.store) is None and keys_file(config).exists():  # a file says for itself what it is
            raise StoreError(
                f"files are encrypted with the keys in {keys_file(config)}, but no key is configured: set"
                " encryption.key_file in the configuration"
            )
        return None
    if database := sqlite_path(config.store):
        refuse_other_encryption(database, key)
    vault = open_or_create(config, key)
    vault.refuse_unfinished()
    return vault


def open_or_create(config: Config, key: bytes) -> "Vault":
    """Open the keys, or make them. Raises StoreError if something is encrypted with keys that are lost."""
    from palaver.store.encryption.vault import create_vault  # noqa: PLC0415 - an extra

    if keys_file(config).exists():
        return _open_keys(config, key)
    refuse_lost_keys(config)
    return create_vault(keys_file(config), key)


def refuse_lost_keys(config: Config) -> None:
    """Raise StoreError if something is encrypted and its keys are not there."""
    if lost := find_lost_keys(config):
        raise StoreError(lost)


def find_lost_keys(config: Config) -> str | None:
    """Return what is encrypted with keys that are not there, and what to do."""
    file, database, files = keys_file(config), sqlite_path(config.store), _files(config)
    if file.exists():
        return None
    if database and is_encrypted(database):
        return f"the keys {file} of the encrypted database are missing: put them back, from the newest backup"
    if has_sealed(files):
        return (
            f"the keys {file} are missing, and files in {files} are encrypted with them: put back a copy of"
            f" {file.name}, or move that folder away to go on without its files"
        )
    return None


def _files(config: Config) -> Path:
    return config.data_dir / "files"


def _open_keys(config: Config, key: bytes) -> "Vault":
    """Open the keys of a store. A rotation can replace your key after it was read: then the new one opens them."""
    from palaver.store.encryption.vault import BadKey, open_vault  # noqa: PLC0415 - an extra

    while True:
        try:
            return open_vault(keys_file(config), key)
        except BadKey:
            found = read_key(config)
            if found is None or found == key:
                raise
            key = found


def find_files_vault(config: Config) -> "Vault | None":
    """Open the keys for the files of this machine, which are encrypted once there are keys."""
    return find_vault(config) if config.encryption.is_on and keys_file(config).exists() else None


def database_key(vault: "Vault | None") -> bytes | None:
    return vault.current.database if vault else None


def find_blob_store(config: Config, vault: "Vault | None") -> BlobStore:
    return BlobStore(_files(config), vault.current.contents if vault else PLAIN)
