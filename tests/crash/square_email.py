"""The square by e-mail: a real Dovecot keeps what people write, and an SMTP server takes the answers."""

import random
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from palaver.platforms.email.parse import message_ids
from palaver.store.store import Store
from palaver.testkit.updates import Message
from tests.crash.square import View, is_group
from tests.platforms.email.dovecot import dovecot
from tests.platforms.email.fakes import text_of
from tests.platforms.email.post import PostOffice, post_office

__all__ = ["EmailSquare", "email_square"]

_MISHAP = 0.02
"""How often something goes wrong with what is sent."""


@dataclass(kw_only=True)
class EmailSquare:
    office: PostOffice
    platform: str = "email"
    keeps_position: bool = True
    _chats: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    _said: dict[str, list[tuple[int, Message]]] = field(
        default_factory=lambda: defaultdict[str, list[tuple[int, Message]]](list)
    )

    @property
    def where(self) -> Mapping[str, Any]:
        return self.office.options

    async def settle(self, chats: int) -> None:
        for number in range(chats):
            people = range(3 if is_group(number) else 1)
            self._chats.append(tuple(f"person-{number}-{each}@example.org" for each in people))

    async def is_heard(self, store: Store) -> bool:
        del store
        return True

    async def speak(self, chance: random.Random, number: int, order: str) -> str:
        place = chance.randrange(len(self._chats))
        people = self._chats[place]
        word, sender = f"c{place}-{number}", chance.choice(people)
        text = f"{order} {word}".strip()
        mail = self.office.compose(
            text,
            sender=sender,
            to=", ".join((self.office.inbox.address, *(each for each in people if each != sender))),
            headers={"References": f"<thread-{place}@example.org>"},
        )
        said = Message(id=message_ids(mail, "Message-ID")[0], author=sender, text=text, at=datetime.now(UTC), key=None)
        self._said[",".join(people)].append((len(self.office.sent), said))
        self._go_wrong(chance)
        self.office.deliver(mail.as_bytes(), sender=sender)
        return word

    def _go_wrong(self, chance: random.Random) -> None:
        """The connection is lost during a send, before or after it is shown, or the server is busy, or IMAP is cut."""
        if chance.random() < _MISHAP:
            self.office.loses = chance.random() < 0.5
        if chance.random() < _MISHAP:
            self.office.answers["MAIL"] = ["421 4.3.2 Restarting"]
        if chance.random() < _MISHAP:
            self.office.imap.cut()

    async def waiting(self, store: Store) -> int:
        del store
        return self.office.inbox.unread()

    async def look(self) -> Sequence[View]:
        """What people said stands before the answers that were sent after it."""
        seen = {place: [(before, 0, said) for before, said in messages] for place, messages in self._said.items()}
        for number, mail in enumerate(self.office.sent):
            ours = Message(
                id=str(number),
                author=self.office.inbox.address,
                text=text_of(mail),
                at=datetime.now(UTC),
                key=str(mail["Message-ID"]),
            )
            chat = ",".join(sorted(address.addr_spec for address in mail["To"].addresses))
            seen.setdefault(chat, []).append((number, 1, ours))
        return [
            View(id=place, messages=[message for *_, message in sorted(messages, key=lambda each: each[:2])])
            for place, messages in seen.items()
        ]


@asynccontextmanager
async def email_square() -> AsyncGenerator[EmailSquare]:
    with dovecot() as server:
        async with post_office(server) as office:
            yield EmailSquare(office=office)
