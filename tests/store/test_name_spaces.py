"""Hostile ids: what is another chat or another person in a key is another one everywhere in the store."""

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.access import Grant, Verdict, decide_access
from palaver.model.key import GroupScope, Scope
from palaver.model.source import Source, Trust, identity_of
from palaver.model.turn import Inbound, outbound_to
from palaver.store.people import grants
from palaver.store.people.grants import GrantTable
from palaver.store.queue import inbox, outbox
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.store import Store
from tests.store.world import NOON, key_of

IDS = (None, "", "42", ":", "a:b", "a", "/", "..", "%", "%3A", "a\nb", "😀", "alt:42", "id:42", "user:42", "alt:alt:42")
SHARED = Scope(group=GroupScope.SHARED)


def any_source(chance: random.Random) -> Source:
    any_id, few = partial(chance.choice, IDS), partial(chance.choice, (None, "42", "a:b"))
    source = Source(
        platform=chance.choice(("telegram", "irc")),
        account=any_id(),
        chat_id=any_id(),
        chat_id_alt=any_id(),
        user_id=any_id(),
        user_id_alt=any_id(),
        scope_id=few(),
        thread_id=few(),
        message_id="1",
    )
    # One chat has one kind.
    has_chat = source.chat_id or source.chat_id_alt
    return replace(source, chat_kind="group") if has_chat and source.chat_id != "42" else source


# What must differ, written from SPEC KEY-2 and KEY-5 alone.


def who(source: Source) -> Hashable:
    named = ("alternate", source.user_id_alt) if source.user_id_alt else ("user", source.user_id)
    return named if named[1] else None


def place(source: Source) -> Hashable:
    if source.chat_id:
        chat: Hashable = ("chat", source.chat_id)
    elif source.chat_id_alt and source.chat_kind != "dm":
        chat = ("alternate", source.chat_id_alt)
    else:
        chat = ("person", who(source))
    return source.platform, source.account, source.scope_id, chat


def differ_alike(sources: Sequence[Source], name: Callable[[Source], Hashable], stored: Sequence[Hashable]) -> bool:
    """Whether two sources have the same stored value exactly if they have the same name."""
    pairs = {(name(source), value) for source, value in zip(sources, stored, strict=True)}
    return len(pairs) == len({first for first, _ in pairs}) == len({second for _, second in pairs})


@transaction
def rows(sql: str) -> Statements[list[Row]]:
    return (yield sql, ())


async def test_hostile_ids_share_nothing_in_the_store(store: Store) -> None:
    chance = random.Random(42)  # noqa: S311
    sources = [any_source(chance) for _ in range(250)]
    assert differ_alike(sources, lambda each: (place(each), each.thread_id), [key_of(each, SHARED) for each in sources])
    assert differ_alike(
        sources, lambda each: (each.platform, who(each)) if who(each) else None, list(map(identity_of, sources))
    )

    accepted: list[Source] = []
    for number, source in enumerate(sources):
        inbound = Inbound(source=source, text="hi", at=NOON)
        if await store.transact(inbox.accept(inbound, key_of(source, SHARED), NOON)) is not None:
            accepted.append(source)
        answer = outbox.enqueue(outbound_to(source, "yes"), SendCause(CauseKind.COMMAND, number), NOON)
        await store.transact(answer)
    assert len(accepted) == len(set(map(place, accepted))) == len(set(map(place, sources))), "a repeat is the same chat"
    sent = await store.read(rows("SELECT cause_id, account, server, chat FROM outbox"))
    addresses = {int(number): tuple(address) for number, *address in sent}
    assert differ_alike(sources, place, [addresses[number] for number in range(len(sources))])


async def test_a_stored_grant_admits_one_person_with_any_ids(store: Store) -> None:
    chance = random.Random(7)  # noqa: S311
    sources = [source for source in (any_source(chance) for _ in range(120)) if who(source)]
    for source in sources[:20]:
        given = Grant(platform=source.platform, user_id=source.participant)
        number = await store.transact(grants.add(given, NOON, by="operator"))
        table = await store.read(grants.load_table(GrantTable()))
        for other in sources:
            allowed = decide_access(other, Trust(), [table.grants[number]]).verdict is Verdict.ALLOW
            names = {("user", other.user_id), ("alternate", other.user_id_alt)}
            assert allowed == (other.platform == source.platform and who(source) in names)
