"""Digests: what tells a row again without telling what was in it. Only whoever holds the store's key can make them."""

import hashlib
import hmac
import secrets
from collections.abc import Iterable

from palaver.domain.session import identity_of
from palaver.domain.transcript import Entry
from palaver.domain.turn import Delivery, Received
from palaver.domain.value import value
from palaver.ports.work import Steps, work
from palaver.stores.records import micros

__all__ = ["Digests", "digests_of_store"]

_LENGTH = 16
"""Hex digits: among ten million rows and a hundred thousand digests, two meet by chance once in twenty million."""


@value(kw_only=False)
class Digests:
    key: bytes

    def entry(self, entry: Entry) -> str:
        """The same wherever the entry is brought back to."""
        sender = entry.sender.id if entry.sender else None
        return self._digest("entry", entry.role.value, str(micros(entry.at)), sender or "", entry.text)

    def message(self, received: Received) -> str:
        inbound = received.inbound
        return self._digest("message", identity_of(inbound.source) or "", str(micros(inbound.at)), inbound.text)

    def send(self, delivery: Delivery) -> str:
        outbound = delivery.outbound
        return self._digest("send", outbound.platform, outbound.chat_id, str(micros(delivery.created)), outbound.text)

    def file(self, sha256: str) -> str:
        """Of what it is kept under."""
        return self._digest("file", sha256)

    def name(self, name: str) -> str:
        """Of what stands for somebody: an identity, a person, a conversation."""
        return self._digest("name", name)

    def seal(self, text: str) -> str:
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()

    def _digest(self, *parts: str) -> str:
        return hmac.new(self.key, _joined(parts), hashlib.sha256).hexdigest()[:_LENGTH]


def _joined(parts: Iterable[str]) -> bytes:
    encoded = (part.encode(errors="surrogatepass") for part in parts)
    return b"".join(len(part).to_bytes(8) + part for part in encoded)


@work
def digests_of_store() -> Steps[Digests]:
    """With the key of this store, made at its first use. It never leaves the store."""
    rows = yield "SELECT value FROM meta WHERE name = 'erasure key'", ()
    if not rows:
        yield (
            "INSERT INTO meta (name, value) VALUES ('erasure key', ?) ON CONFLICT (name) DO NOTHING",
            (secrets.token_hex(32),),
        )
        rows = yield "SELECT value FROM meta WHERE name = 'erasure key'", ()
    return Digests(bytes.fromhex(rows[0][0]))
