"""The keys of an encrypted store: data keys, each wrapped with your key, in one small file.

Your key opens the file, a data key opens everything else. So another key of yours means to write this file anew, also
while a gateway runs.
"""

import base64
import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import IO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV

from palaver.db.private_files import appearing, flush_folder, locked, make_private_folder
from palaver.model.errors import StoreError
from palaver.model.value import value
from palaver.store.encryption.contents import SEALED_EXPORT, SHA256, ContentWriter, PlainContents, in_memory
from palaver.store.encryption.stream import DamagedContent, SealedWriter, derive, seal, unseal, unsealed

_FORMAT, _VERSION = "palaver keys", 1
KEY_BYTES = 32
_NONCE_BYTES = 12
_MAX_KEYS_BYTES = 1 << 16


class BadKey(StoreError):
    """A key is missing, malformed, or not the one that opens a store."""


def new_key() -> str:
    """Return a new key as text."""
    return base64.b64encode(os.urandom(KEY_BYTES)).decode()


def parse_key(text: str) -> bytes:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise BadKey("the encryption key is not one that palaver encryption key makes: 44 characters of base64")
    return key


class DataKey:
    """The key of the data, and the keys for each kind of it that are derived from it."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    @cached_property
    def id(self) -> str:
        return derive(self.secret, "id", length=8).hex()

    @cached_property
    def database(self) -> bytes:
        return derive(self.secret, "database")

    @cached_property
    def content(self) -> bytes:
        return derive(self.secret, "content")

    @cached_property
    def contents(self) -> "SealedContents":
        return SealedContents(self)


class SealedContents(PlainContents):
    """Contents sealed with a data key, each named by its encrypted hash. Plain ones are read, too."""

    def __init__(self, key: DataKey) -> None:
        self._key = key.content
        self._names = AESSIV(derive(key.secret, "names"))

    def name_of(self, sha256: str) -> str:
        if not SHA256.fullmatch(sha256):
            return sha256  # a file that is not ours
        return self._names.encrypt(bytes.fromhex(sha256), None).hex()

    def hash_of(self, name: str) -> str | None:
        if SHA256.fullmatch(name):
            return name
        try:
            return self._names.decrypt(bytes.fromhex(name), None).hex()
        except (InvalidTag, ValueError):
            return None

    def writer(self, target: IO[bytes]) -> ContentWriter:
        return SealedWriter(target, self._key)

    def reader(self, source: IO[bytes], name: str) -> IO[bytes]:
        return source if SHA256.fullmatch(name) else unsealed(source, self._key)

    def is_intact(self, source: IO[bytes], name: str) -> bool:
        try:
            return super().is_intact(source, name)
        except DamagedContent:
            return False

    @contextmanager
    def readable(self, path: Path) -> Generator[Path]:
        if SHA256.fullmatch(path.name):
            yield path
            return
        with path.open("rb") as source, in_memory(unsealed(source, self._key)) as plain:
            yield plain


_Wraps = dict[str, str]
"""A data key, encrypted with each key that opens it, by the id of that key; the newest is the last."""


@value
class Vault:
    """The opened keys of a store."""

    path: Path
    key: bytes = field(repr=False)
    """Yours."""
    data: tuple[DataKey, ...]
    """The newest first. There is one, except while the data is encrypted anew."""

    @property
    def current(self) -> DataKey:
        return self.data[0]

    def refuse_unfinished(self) -> None:
        if len(self.data) > 1:
            raise StoreError("a change of the data key is not finished: run palaver encryption renew again")

    def file_content(self) -> bytes:
        """Return the content of the file, for a backup: of no use without your key."""
        return self.path.read_bytes()

    def count_keys(self) -> int:
        """Return how many keys open the store."""
        return len(next(iter(_read(self.path).values())))

    # Change

    def add_key(self, key: bytes) -> "Vault":
        """Make another key open the store, too; return the vault as that key opens it."""
        found = _read(self.path)
        for wraps in found.values():
            wraps.pop(_key_id(key), None)  # added again, it is the newest
        _write(self.path, {data.id: _wrap(data, key, found.get(data.id)) for data in self.data})
        return replace(self, key=key)

    def keep_only_key(self) -> None:
        """Forget all keys but the one that opened it, which must be the newest."""
        ids = list(next(iter(_read(self.path).values())))
        if ids[-1] != _key_id(self.key):
            raise StoreError(
                f"{len(ids)} keys open the store, and the configured one is not the newest: configure the new key, then"
                " run palaver encryption rotate --finish; to keep the configured one instead, first run palaver"
                " encryption rotate --new-key-file with a file that has it"
            )
        _write(self.path, {data.id: _wrap(data, self.key) for data in self.data})

    def add_data_key(self) -> "Vault":
        """Put a new data key first. Only the configured key can open it, so it must be the only one."""
        self.refuse_unfinished()
        if (count := self.count_keys()) > 1:
            raise StoreError(f"{count} keys open the store: first run palaver encryption rotate --finish")
        changed = replace(self, data=(DataKey(os.urandom(KEY_BYTES)), *self.data))
        found = _read(self.path)
        _write(self.path, {data.id: _wrap(data, self.key, found.get(data.id)) for data in changed.data})
        return changed

    def keep_only_current(self) -> "Vault":
        """Forget all data keys but the newest."""
        _write(self.path, {self.current.id: _wrap(self.current, self.key, _read(self.path)[self.current.id])})
        return replace(self, data=self.data[:1])

    # Exports

    def export_writer(self, target: IO[bytes]) -> SealedWriter:
        """Seal an export. The wrapped keys come first, so that your key opens it anywhere."""
        keys = self.file_content()
        target.write(SEALED_EXPORT + len(keys).to_bytes(4, "big") + keys)
        return SealedWriter(target, self.current.content)

    def seal(self, content: bytes) -> bytes:
        return seal(content, self.current.content)

    def unseal(self, content: bytes) -> bytes:
        return unseal(content, self.current.content)


def create_vault(path: Path, key: bytes) -> Vault:
    """Make a data key and write its file. If another process is faster, its data key counts for both."""
    make_private_folder(path.parent)
    made = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    data = DataKey(os.urandom(KEY_BYTES))
    _write(made, {data.id: _wrap(data, key)})
    try:
        with suppress(FileExistsError):
            os.link(made, path)
    finally:
        made.unlink()
    flush_folder(path.parent)
    return open_vault(path, key)


@contextmanager
def changing(path: Path) -> Generator[None]:
    """Lock the keys before they are read to be changed: of two changes at once, one would forget a key in use."""
    make_private_folder(path.parent)
    with locked(path.parent, f"another command changes the keys in {path}: wait until it has ended"):
        yield


def open_vault(path: Path, key: bytes) -> Vault:
    """Open the file of keys. Raises BadKey if the key does not fit."""
    return Vault(path=path, key=key, data=_unwrap(path, _read(path), key))


def open_export(source: IO[bytes], key: bytes) -> IO[bytes]:
    """Return the content of a sealed export, whose first line was read."""
    keys = source.read(min(int.from_bytes(source.read(4), "big"), _MAX_KEYS_BYTES))
    return unsealed(source, _unwrap(None, _parse("this export", keys), key)[0].content)


# The file


def _key_id(key: bytes) -> str:
    return derive(key, "key id", length=8).hex()


def _wrap(data: DataKey, key: bytes, others: _Wraps | None = None) -> _Wraps:
    nonce = os.urandom(_NONCE_BYTES)
    sealed = nonce + AESGCM(key).encrypt(nonce, data.secret, data.id.encode())
    return {**(others or {}), _key_id(key): base64.b64encode(sealed).decode()}


def _unwrap(path: Path | None, found: Mapping[str, _Wraps], key: bytes) -> tuple[DataKey, ...]:
    opened: list[DataKey] = []
    for id_, wraps in found.items():
        sealed = base64.b64decode(wraps.get(_key_id(key), ""))
        try:
            secret = AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], id_.encode())
        except (InvalidTag, ValueError):
            what = f"the keys in {path}" if path else "it"
            raise BadKey(f"the encryption key does not open {what}: use the key that it was encrypted with") from None
        opened.append(DataKey(secret))
    return tuple(opened)


def _read(path: Path) -> dict[str, _Wraps]:
    """Return the data keys by their ids, the newest first."""
    try:
        return _parse(str(path), path.read_bytes())
    except OSError as error:
        raise StoreError(f"the keys in {path} cannot be read: {error.strerror or error}") from error


def _parse(name: str, content: bytes) -> dict[str, _Wraps]:
    try:
        fields = json.loads(content)
        found: dict[str, _Wraps] = {each["id"]: dict(each["wraps"]) for each in fields["data_keys"]}
        is_ours = bool(found) and fields["format"] == _FORMAT and fields["version"] <= _VERSION
    except (ValueError, KeyError, TypeError):
        found, is_ours = {}, False
    if not is_ours:
        raise StoreError(f"the keys in {name} are damaged, or of a newer Palaver: take them from a backup")
    return found


def _write(path: Path, keys: Mapping[str, _Wraps]) -> None:
    data = [{"id": id_, "wraps": wraps} for id_, wraps in keys.items()]
    with appearing(path) as file:
        file.write(json.dumps({"format": _FORMAT, "version": _VERSION, "data_keys": data}, indent=1).encode())
