"""Open encrypted callbacks: AES-256-CBC, and the envelope of WeChat and WeCom. It needs cryptography, from an extra."""

import hashlib
import os
import xml.etree.ElementTree as ET
from base64 import b64decode, b64encode
from binascii import Error as BadBase64

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from palaver.model.value import value
from palaver.protocols.incoming import is_secret

__all__ = ["BadEnvelope", "Envelope", "Sealed", "decode", "decrypt", "read_xml"]

_BLOCK = 16
_PADDED_TO = 32
"""WeChat and WeCom pad to 32 bytes."""
_KEY_TEXT = 43
_LENGTH_AT, _TEXT_AT = 16, 20


class BadEnvelope(ValueError):
    """The signature is wrong, or it cannot be decrypted."""


def decrypt(key: bytes, iv: bytes, sealed: bytes) -> bytes:
    """Decrypt, and remove the padding."""
    if not sealed or len(sealed) % _BLOCK:
        raise BadEnvelope("not whole blocks")
    decryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor()
    padded = decryptor.update(sealed) + decryptor.finalize()
    size = padded[-1]
    if not 1 <= size <= _PADDED_TO or size > len(padded):
        raise BadEnvelope("wrong padding")
    return padded[:-size]


def decode(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (BadBase64, ValueError) as error:
        raise BadEnvelope("not Base64") from error


@value
class Sealed:
    """What goes out: the encrypted text, and its signature."""

    encrypted: str
    signature: str


class Envelope:
    """The envelope of WeChat and WeCom: encrypted with the EncodingAESKey, signed with the token, for one receiver."""

    def __init__(self, *, token: str, encoding_key: str, receiver: str) -> None:
        self._token, self._receiver = token, receiver.encode()
        # The last character of the key contains two bits too many.
        self._key = b64decode(f"{encoding_key}=") if len(encoding_key) == _KEY_TEXT else b""

    def sign(self, *parts: str) -> str:
        return hashlib.sha1("".join(sorted([self._token, *parts])).encode("utf-8", "replace")).hexdigest()  # noqa: S324 - as documented

    def check(self, signature: str, *parts: str) -> None:
        if not is_secret(signature, self.sign(*parts)):
            raise BadEnvelope("wrong signature")

    def open(self, encrypted: str, *, signature: str, timestamp: str, nonce: str) -> bytes:
        """Return what is inside. Raise BadEnvelope unless it was signed, and meant for us."""
        self.check(signature, timestamp, nonce, encrypted)
        plain = decrypt(self._key, self._key[:_BLOCK], decode(encrypted))
        end = _TEXT_AT + int.from_bytes(plain[_LENGTH_AT:_TEXT_AT], "big")
        if len(plain) < _TEXT_AT or plain[end:] != self._receiver:
            raise BadEnvelope("not for us")
        return plain[_TEXT_AT:end]

    def seal(self, text: bytes, *, timestamp: str, nonce: str) -> Sealed:
        plain = os.urandom(_LENGTH_AT) + len(text).to_bytes(4, "big") + text + self._receiver
        size = _PADDED_TO - len(plain) % _PADDED_TO
        encryptor = Cipher(algorithms.AES(self._key), modes.CBC(self._key[:_BLOCK])).encryptor()
        encrypted = b64encode(encryptor.update(plain + bytes([size]) * size) + encryptor.finalize()).decode()
        return Sealed(encrypted=encrypted, signature=self.sign(timestamp, nonce, encrypted))


def read_xml(body: bytes) -> dict[str, str]:
    """Return the texts below the root, by tag. Raise ValueError for anything but such a plain document in UTF-8."""
    try:
        # Decoded here, the parser ignores the encoding that the document names. It would still guess UTF-16 from zeros.
        text = body.decode("utf-8-sig")
        if any(part in text for part in ("<!DOCTYPE", "<!ENTITY", "\0")):
            raise ValueError("a document type, or not UTF-8")
        root = ET.fromstring(text)  # noqa: S314 - without a document type there are no entities
    except (UnicodeDecodeError, ET.ParseError) as error:
        raise ValueError("not XML") from error
    return {child.tag: child.text or "" for child in root}
