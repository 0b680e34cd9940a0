"""Naming: what the model sees as the names and ids of people and places, with ids hidden where redaction is on."""

import hmac
import re
from collections.abc import Iterable
from dataclasses import field

from palaver.model.label import Label, quote_label
from palaver.model.platform import Platform
from palaver.model.source import encode_id
from palaver.model.transcript import Sender
from palaver.model.value import value


@value(kw_only=False)
class Pseudonyms:
    key: bytes = field(repr=False)

    def of(self, kind: str, platform: str, identity: str) -> str:
        """Return a stable pseudonym such as `user_3f…` that reveals nothing about the id."""
        message = ":".join(map(encode_id, (kind, platform, identity)))
        return f"{kind}_{hmac.digest(self.key, message.encode(), 'sha256').hex()[:16]}"

    def resolve(self, pseudonym: str, platform: str, candidates: Iterable[str]) -> str | None:
        """Return the candidate id that has this pseudonym."""
        kind, _, _ = pseudonym.rpartition("_")
        return next((known for known in candidates if self.of(kind, platform, known) == pseudonym), None)


@value
class Naming:
    """How one platform's names are shown, in the context section and in the view's markers."""

    platform: Platform
    pseudonyms: Pseudonyms | None = None
    """Set when redaction is on."""

    @property
    def hides_ids(self) -> bool:
        return self.pseudonyms is not None and self.platform.hides_ids

    def name_and_id(
        self, kind: str, identity: str | None, name: Label | None, others: Iterable[str | None] = ()
    ) -> str:
        """Return name and id, each in quotes it cannot close; `others` are more ids the name must not reveal."""
        display_name = self.name(name, (identity, *others))
        if not identity:
            return display_name or "unknown"
        shown_id = self._id(kind, identity)
        return f"{display_name} (id {shown_id})" if display_name else f"id {shown_id}"

    def sender(self, sender: Sender | None) -> str:
        """Return the short name for a message's marker, with the id if mentions need it or there is no name."""
        identity, name = sender or (None, None)
        if self.platform.mentions_by_id:
            return self.name_and_id("user", identity, name)
        return self.name(name, (identity,)) or self.name_and_id("user", identity, None)

    def has_display_name(self, sender: Sender | None) -> bool:
        """Return whether a message must say who sent it, because its sender has a name besides the account's own.

        This only happens on platforms where an account is a chat.
        """
        if not self.platform.accounts_are_chats or sender is None or sender.name is None:
            return False
        return sender.name != Label(sender.id or "")

    def name(self, name: Label | None, ids: Iterable[str | None]) -> str:
        """Return the quoted name, or nothing if it is blank or would reveal an id that is hidden."""
        if name is None or not (text := name.plain()):
            return ""
        return "" if self.hides_ids and _reveals_id(text, ids) else quote_label(name)

    def _id(self, kind: str, identity: str) -> str:
        if self.pseudonyms is None or not self.platform.hides_ids:
            return quote_label(Label(identity))
        return self.pseudonyms.of(kind, self.platform.name, identity)


# Names contain phone numbers and addresses, and not only the sender's own. So anything that looks like one counts,
# with any separators between its digits.
_NUMBER_OR_ADDRESS = re.compile(r"\d(?:[\W_]*\d){6}|\w@\w")
_MIN_PARTIAL_MATCH = 5  # A shorter id is in many names by chance.


def _reveals_id(name: str, ids: Iterable[str | None]) -> bool:
    if _NUMBER_OR_ADDRESS.search(name):
        return True
    folded = name.casefold()
    return any(_contains(folded, identity.casefold()) for identity in ids if identity)


def _contains(name: str, identity: str) -> bool:
    return identity in name if len(identity) >= _MIN_PARTIAL_MATCH else identity == name
