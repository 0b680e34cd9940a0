"""Naming: what the model is told people and places are called, and what of that is hidden from it."""

import hmac
import re
from collections.abc import Iterable
from dataclasses import field

from palaver.model.ids import encode_id
from palaver.model.label import Label
from palaver.model.platform import Platform
from palaver.model.prompt_markers import quote_label
from palaver.model.transcript import Sender
from palaver.model.value import value

__all__ = [
    "Naming",
    "Pseudonyms",
]


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


@value
class Naming:
    """The names of one platform. The context section and the marks in the view are both written with it."""

    platform: Platform
    pseudonyms: Pseudonyms | None = None
    """Given where redaction is on."""

    @property
    def hides_ids(self) -> bool:
        return self.pseudonyms is not None and self.platform.hides_ids

    def name_and_id(
        self, kind: str, identity: str | None, name: Label | None, others: Iterable[str | None] = ()
    ) -> str:
        """Name and id, each in quotes it cannot end; `others` are more ids that the name must not give away."""
        called = self.name(name, (identity, *others))
        if not identity:
            return called or "unknown"
        return f"{called} (id {self._id(kind, identity)})" if called else f"id {self._id(kind, identity)}"

    def sender(self, sender: Sender | None) -> str:
        """Briefly, since it stands before every message: the id only where mentions need it or there is no name."""
        identity, name = sender or (None, None)
        if self.platform.mentions_by_id:
            return self.name_and_id("user", identity, name)
        return self.name(name, (identity,)) or self.name_and_id("user", identity, None)

    def has_display_name(self, sender: Sender | None) -> bool:
        """Where an account is a chat, whoever speaks by it: each message says who, if that is not the account."""
        if not self.platform.accounts_are_chats or sender is None or sender.name is None:
            return False
        return sender.name != Label(sender.id or "")

    def name(self, name: Label | None, ids: Iterable[str | None]) -> str:
        """The name in quotes; nothing where it shows nothing, or gives an id away where ids are hidden."""
        if name is None or not (text := name.plain()):
            return ""
        return "" if self.hides_ids and _betrays(text, ids) else quote_label(name)

    def _id(self, kind: str, identity: str) -> str:
        if self.pseudonyms is None or not self.platform.hides_ids:
            return quote_label(Label(identity))
        return self.pseudonyms.of(kind, self.platform.name, identity)


# The ids that get into names are phone numbers, national or international, and addresses; not only the sender's own.
# So whatever looks like one is taken for one, whatever stands between its digits.
_NUMBER_OR_ADDRESS = re.compile(r"\d(?:[\W_]*\d){6}|\w@\w")
_SHORTEST_PART = 5


def _betrays(name: str, ids: Iterable[str | None]) -> bool:
    if _NUMBER_OR_ADDRESS.search(name):
        return True
    folded = name.casefold()
    return any(_is_in(identity.casefold(), folded) for identity in ids if identity)


def _is_in(identity: str, name: str) -> bool:
    """A very short id is in many names by chance."""
    return identity in name if len(identity) >= _SHORTEST_PART else identity == name
