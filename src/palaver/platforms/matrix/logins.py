"""Keep a login between starts, sealed with the account's password: homeservers limit how often we can log in."""

import base64
import hashlib
import secrets

import msgspec
from Crypto.Cipher import AES

from palaver.platforms.matrix.options import Options

_SALT_BYTES = _NONCE_BYTES = _TAG_BYTES = 16


class Login(msgspec.Struct, frozen=True, kw_only=True):
    device_id: str
    token: str


def seal(login: Login, options: Options) -> str:
    """Return the login as text that only somebody with the password can read; empty without a password."""
    if options.password is None:
        return ""
    salt, nonce = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_NONCE_BYTES)
    encrypted, tag = _cipher(options, salt, nonce).encrypt_and_digest(msgspec.json.encode(login))
    return base64.urlsafe_b64encode(salt + nonce + tag + encrypted).decode()


def unseal(text: str, options: Options) -> Login | None:
    """Return a sealed login; None if it is of another account, password or device, or damaged."""
    if options.password is None or not text:
        return None
    try:
        sealed = base64.urlsafe_b64decode(text)
        salt, nonce = sealed[:_SALT_BYTES], sealed[_SALT_BYTES : _SALT_BYTES + _NONCE_BYTES]
        rest = sealed[_SALT_BYTES + _NONCE_BYTES :]
        opened = _cipher(options, salt, nonce).decrypt_and_verify(rest[_TAG_BYTES:], rest[:_TAG_BYTES])
        return msgspec.json.decode(opened, type=Login)
    except (ValueError, msgspec.DecodeError):
        return None


def _cipher(options: Options, salt: bytes, nonce: bytes):  # noqa: ANN202 - the library has no name for it
    password = options.password.get_secret_value() if options.password else ""
    key = hashlib.scrypt(password.encode(), salt=salt, n=2**14, r=8, p=1, dklen=32)
    cipher = AES.new(key, AES.MODE_GCM, nonce=nonce)
    cipher.update(f"{options.homeserver} {options.user_id} {options.device_id}".encode())
    return cipher
