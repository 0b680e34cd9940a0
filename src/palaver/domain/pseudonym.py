"""Pseudonyms: keyed stand-ins for ids, stable per installation, that only the holder of the key can resolve."""

import hmac
from collections.abc import Iterable
from dataclasses import field

from palaver.domain.ids import encode_id
from palaver.domain.value import value

__all__ = ["Pseudonyms"]


@value(kw_only=False)
class Pseudonyms:
    key: bytes = field(repr=False)

    def of(self, kind: str, platform: str, identity: str) -> str:
        """`user_3f…`: the same for the same id, different for every other, telling nothing of it."""
        message = ":".join(map(encode_id, (kind, platform, identity)))
        return f"{kind}_{hmac.digest(self.key, message.encode(), 'sha256').hex()[:16]}"

    def resolve(self, pseudonym: str, platform: str, candidates: Iterable[str]) -> str | None:
        """Which of the ids the operator knows stands behind a pseudonym."""
        kind, _, _ = pseudonym.rpartition("_")
        return next((known for known in candidates if self.of(kind, platform, known) == pseudonym), None)
