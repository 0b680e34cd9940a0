"""Strangers ask, are let in by a code that nobody can read, and lose nothing of what they said."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from palaver.db.transaction import Row, Statements, Transaction, transaction
from palaver.model import people
from palaver.model.access import AccessRole, Effect, Grant
from palaver.model.addressing import ConversationRules
from palaver.model.errors import LockedOut
from palaver.model.label import Label
from palaver.model.people import MAX_KEPT_MESSAGES, Reception
from palaver.model.session import Principal
from palaver.model.source import Labels, Source
from palaver.model.turn import Inbound, Outbound, OutboxState
from palaver.store.people import grants, pairing
from palaver.store.people.grants import GrantTable, Stranger
from palaver.store.queue import outbox, turn_control, turns
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.world import NOON, begin_sends, dm, key_of, only_begun

CODE, OTHER = "ACDEFGHJ", "KMNPQRTU"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """So many strangers at a time: to hide a code takes 20 ms of the processor."""
    monkeypatch.setattr(people, "MAX_NEW_STRANGERS", 5)
    return 5


def notice(source: Source, text: str = "word") -> list[Outbound]:
    return [Outbound(platform=source.platform, account=source.account, chat_id=source.chat_id or "", text=text)]


async def ask(
    store: Store, user: str, text: str = "hello", *, code: str = CODE, now: datetime = NOON, id_: str | None = None
) -> tuple[int, str] | None:
    source = dm(user, message_id=id_ or str(hash((user, text))))
    inbound = Inbound(source=source, text=text, at=now, labels=Labels(user=Label("mallory\n\u202e")))
    asked = await store.transact(
        pairing.request(inbound, key_of(source), now, code=code, answer=notice(source, f"your code is {code}"))
    )
    return asked and asked[:2]


async def approve(
    store: Store, code: str = CODE, *, now: datetime = NOON, role: AccessRole = AccessRole.MEMBER, by: str = "operator"
) -> Stranger | None:
    return await store.transact(pairing.approve(code, role, now, by=by, notice="word"))


@transaction
def rows(sql: str) -> Statements[list[Row]]:
    return (yield sql, ())


async def states(store: Store) -> Sequence[str]:
    return [row[0] for row in await store.read(rows("SELECT state FROM inbox ORDER BY no"))]


async def kinds(store: Store) -> list[str]:
    return [change.kind.value for change in await store.read(grants.list_changes(50))]


async def owed(store: Store) -> list[str]:
    return [
        row[0]
        for row in await store.read(
            rows("SELECT cause_kind || ':' || cause_id || ':' || part FROM outbox ORDER BY created, id DESC")
        )
    ]


async def test_a_code_is_owed_once_and_kept_as_a_hash(store: Store) -> None:
    number, why = await ask(store, "7") or (0, "")
    assert why == Reception.CODE.value
    assert await ask(store, "7") is None, "a redelivery asks for nothing"
    assert (await ask(store, "7", "are you there") or (0, ""))[1] == Reception.WAITS.value
    assert await owed(store) == [f"pair:{number}:0"]
    stored = await store.read(rows("SELECT code_hash FROM pairings"))
    assert CODE not in str(stored)
    waiting = await store.read(pairing.list_pending(NOON))
    assert [(each.identity, each.kept) for each in waiting] == [("telegram:7", 2)]
    assert await store.read(pairing.list_pending(NOON + 61 * MINUTE)) == []


async def test_a_code_stays_until_it_is_sent_and_no_longer(store: Store) -> None:
    await ask(store, "7")
    await ask(store, "8", code=OTHER)
    claimed = await store.transact(begin_sends("w1", NOON))
    assert await store.transact(pairing.wipe_sent_codes()) == 0
    for delivery, state in zip(claimed, (OutboxState.DELIVERED, OutboxState.DUE), strict=True):
        await store.transact(outbox.settle_send(delivery, "w1", state))
    assert await store.transact(pairing.wipe_sent_codes()) == 1
    (again,) = await store.transact(begin_sends("w1", NOON))
    assert again.outbound.text == f"your code is {CODE}"
    await store.transact(outbox.settle_send(again, "w1", OutboxState.DEAD))
    assert await store.transact(pairing.wipe_sent_codes()) == 1
    assert "your code" not in str(await store.read(rows("SELECT body FROM outbox")))
    assert await store.transact(pairing.wipe_sent_codes()) == 0
    assert await store.read(rows("SELECT cause_id FROM wiped_after_send")) == []


@transaction
def wipe_while(happens: Transaction[object]) -> Statements[None]:
    """As another worker's commit right after the first look, which PostgreSQL lets the rest of the work see."""
    steps = iter(pairing.wipe_sent_codes())
    found = yield next(steps)
    yield from happens
    with suppress(StopIteration):
        while True:
            found = yield steps.send(found)


async def test_a_code_that_is_sent_while_others_are_forgotten_is_forgotten_next(store: Store) -> None:
    await ask(store, "7")
    (sent,) = await store.transact(begin_sends("w1", NOON))
    await store.transact(wipe_while(outbox.settle_send(sent, "w1", OutboxState.DELIVERED)))
    assert await store.transact(pairing.wipe_sent_codes()) == 1
    assert "your code" not in str(await store.read(rows("SELECT body FROM outbox")))
    assert await store.read(rows("SELECT cause_id FROM wiped_after_send")) == []


async def test_someone_who_is_let_in_gets_the_role_and_their_words_wait_for_an_answer(store: Store) -> None:
    await ask(store, "8", "somebody else", code=OTHER)
    first, _ = await ask(store, "7", "one") or (0, "")
    await ask(store, "7", "two")
    stranger = await approve(store, role=AccessRole.OWNER)
    assert stranger is not None
    assert stranger.identity == "telegram:7"
    table = await store.read(grants.load_table(GrantTable()))
    assert list(table.grants.values()) == [Grant(platform="telegram", user_id="7", role=AccessRole.OWNER)]
    assert await states(store) == ["refused", "waiting", "waiting"]
    assert f"paired:{first}:0" in await owed(store)
    assert await store.read(violations()) == []
    keys = await store.read(store.inbox.list_ready(5))
    assert [key.text for key in keys] == [key_of(dm("7")).text]
    assert await approve(store) is None, "a code is good once"
    assert await kinds(store) == ["asked", "asked", "granted", "approved", "wrong-code"]


async def test_who_was_let_in_hears_once_that_an_answer_comes(store: Store) -> None:
    await ask(store, "7", "one")
    second, _ = await ask(store, "7", "two") or (0, "")
    await approve(store, now=NOON + MINUTE)
    later = NOON + 2 * MINUTE
    begin = turns.begin(key_of(dm("7")), "w", later, MINUTE, ConversationRules())
    begun = only_begun(await store.transact(begin))
    assert begun
    newer = Inbound(source=dm("7", message_id="m3"), text="three", at=later)
    third = await store.transact(store.inbox.accept(newer, begun.turn.key, later))
    (still,) = notice(dm("7"), "Still answering.")
    for number, is_told in ((second, False), (third or 0, True)):
        await store.transact(turn_control.acknowledge_wait(begun.turn, number, still, later))
        assert (f"busy:{begun.turn.number}:0" in await owed(store)) == is_told


async def test_what_was_kept_comes_back_with_its_role(store: Store) -> None:
    await ask(store, "7", "one")
    await approve(store, role=AccessRole.ADMIN)
    received = await store.read(store.inbox.get_message(1, Principal.operator()))
    assert received is not None
    assert (received.inbound.text, received.role, received.reason) == ("one", AccessRole.ADMIN, None)


async def test_strangers_cannot_fill_the_inbox_with_words(store: Store, few: int) -> None:
    for number in range(MAX_KEPT_MESSAGES + 5):
        await ask(store, "7", f"m{number} xylophone")
    for user in range(8, 10 + few):
        await ask(store, str(user), "xylophone too")
    texts = await store.read(rows("SELECT body FROM inbox"))
    assert sum(b"xylophone" in row[0] for row in texts) == MAX_KEPT_MESSAGES + few - 1
    assert len(await owed(store)) == few
    assert set(await states(store)) == {"refused"}


async def test_a_newer_code_takes_the_place_of_the_older_and_keeps_what_was_said(store: Store) -> None:
    await ask(store, "7", "one")
    await ask(store, "7", "two", code=OTHER, now=NOON + 11 * MINUTE)
    assert await approve(store, CODE, now=NOON + 12 * MINUTE) is None
    third = await ask(store, "7", "three", now=NOON + 12 * MINUTE)
    assert (third or (0, ""))[1] == Reception.WAITS.value, "the newer code is as young as it is"
    assert await approve(store, OTHER, now=NOON + 12 * MINUTE)
    assert await states(store) == ["waiting"] * 3


async def test_a_code_runs_out(store: Store) -> None:
    await ask(store, "7", "one")
    assert await approve(store, now=NOON + 60 * MINUTE) is None
    await ask(store, "7", "two", code=OTHER, now=NOON + 61 * MINUTE)
    assert await approve(store, OTHER, now=NOON + 61 * MINUTE)
    assert await states(store) == ["refused", "waiting"]


async def test_five_wrong_codes_lock_out_anyone_who_tries_and_nobody_else(store: Store) -> None:
    await ask(store, "7")
    for second in range(5):
        assert await approve(store, OTHER, by="telegram:6", now=NOON + timedelta(seconds=second)) is None
    with pytest.raises(LockedOut, match="13:00 UTC"):
        await approve(store, CODE, by="telegram:6", now=NOON + MINUTE)
    later = NOON + 61 * MINUTE
    await ask(store, "7", "again", now=later)
    assert await approve(store, CODE, by="operator", now=later)
    await ask(store, "8", now=later)
    assert await approve(store, CODE, by="telegram:6", now=later), "after an hour it is forgotten"


async def test_a_right_code_forgives_who_entered_it_and_nobody_else(store: Store) -> None:
    for user, code in (("7", CODE), ("8", OTHER)):
        await ask(store, user, code=code)
    for _ in range(5):
        assert await approve(store, "telegram:9", by="telegram:5") is None, "an account is no code to guess"
    for guesser in ("telegram:5", "telegram:6"):
        for _ in range(4):
            assert await approve(store, "A" * 8, by=guesser) is None
    assert await approve(store, CODE, by="telegram:5")
    for guesser in ("telegram:5", "telegram:6"):
        assert await approve(store, "A" * 8, by=guesser) is None
    assert await approve(store, "A" * 8, by="telegram:5") is None
    with pytest.raises(LockedOut):
        await approve(store, OTHER, by="telegram:6")


async def test_no_code_is_handed_out_while_it_would_be_rejected(store: Store) -> None:
    """Who has one keeps it; others wait for the owner to approve their account."""
    await ask(store, "7")
    for _ in range(5):
        await approve(store, OTHER, by="telegram:6")
    for user in ("8", "8", "7"):
        later = NOON + 11 * MINUTE
        source = dm(user, message_id=f"later {user}")
        inbound = Inbound(source=source, text="hi", at=later)
        answers = {"answer": notice(source, f"your code is {OTHER}"), "without_code": notice(source, "wait")}
        asked = await store.transact(pairing.request(inbound, key_of(source), later, code=OTHER, **answers))
        if asked:
            assert asked.reason == (Reception.WAITS if user == "7" else Reception.LOCKED).value
            assert asked.rank == (None if user == "7" else 1)
    sent = [each.outbound.text for each in await store.transact(begin_sends("w", NOON + 12 * MINUTE))]
    assert sorted(sent) == ["wait", f"your code is {CODE}"]
    assert await approve(store, CODE, now=NOON + 12 * MINUTE)
    assert await approve(store, "telegram:8", by="telegram:6", now=NOON + 12 * MINUTE)
    assert await states(store) == ["waiting"] * 3
    after = NOON + 61 * MINUTE
    assert (await ask(store, "9", now=after) or (0, ""))[1] == Reception.CODE.value


async def test_a_lock_out_of_one_who_approves_holds_back_no_code_that_another_can_enter(store: Store) -> None:
    await ask(store, "6")
    assert await approve(store, by="operator")
    for _ in range(5):
        await approve(store, OTHER, by="telegram:6")
    assert (await ask(store, "7") or (0, ""))[1] == Reception.CODE.value
    with pytest.raises(LockedOut):
        await approve(store, by="telegram:6")
    assert await approve(store, by="operator")
    for _ in range(5):
        await approve(store, OTHER, by="operator")
    assert (await ask(store, "8") or (0, ""))[1] == Reception.LOCKED.value


async def test_someone_who_is_denied_waits_before_asking_again(store: Store) -> None:
    await ask(store, "7")
    assert await store.transact(pairing.deny("telegram:9", NOON, by="operator")) is None
    denied = await store.transact(pairing.deny("telegram:7", NOON, by="operator"))
    assert denied is not None
    assert "hello" not in str(await store.read(rows("SELECT body FROM inbox"))), "nobody can read it any more"
    assert await approve(store) is None
    assert (await ask(store, "7", "please", now=NOON + MINUTE) or (0, ""))[1] == Reception.TOO_OFTEN.value
    await ask(store, "8")
    assert await store.transact(pairing.deny(CODE, NOON, by="operator", blocks=True)), "or by the code"
    (never,) = (await store.read(grants.load_table(GrantTable()))).grants.values()
    assert (never.effect, never.user_id) == (Effect.BLOCK, "8")


async def test_two_who_approve_at_once_let_in_once(store: Store) -> None:
    await ask(store, "7")
    both = await asyncio.gather(approve(store), approve(store))
    assert sorted(each is None for each in both) == [False, True]
    assert len((await store.read(grants.load_table(GrantTable()))).grants) == 1
    assert await states(store) == ["waiting"]


async def test_many_at_once_get_so_many_codes_and_others_theirs_ten_minutes_later(store: Store, few: int) -> None:
    crowd = [str(user) for user in range(few + 10)]
    await asyncio.gather(*(ask(store, user) for user in crowd))
    lucky = [each.source.user_id or "" for each in await store.read(pairing.list_pending(NOON))]
    assert len(lucky) == few
    assert (await ask(store, "honest") or (0, ""))[1] == Reception.TOO_MANY.value
    elsewhere = replace(dm("honest", message_id="1"), account="second")
    inbound = Inbound(source=elsewhere, text="hi", at=NOON)
    asked = await store.transact(pairing.request(inbound, key_of(elsewhere), NOON, code=OTHER, answer=()))
    assert asked
    assert (asked.reason, asked.rank) == (Reception.CODE.value, 1), "each account has its own limit"
    later = NOON + 10 * MINUTE
    await asyncio.gather(*(ask(store, user, "again", now=later) for user in lucky))
    assert (await ask(store, "honest", "again", now=later) or (0, ""))[1] == Reception.CODE.value


async def test_strangers_that_never_cease_to_come_keep_nobody_out_for_good(store: Store, few: int) -> None:
    for moment in range(3):
        now = NOON + moment * 9 * MINUTE
        await asyncio.gather(*(ask(store, f"{moment} {user}", now=now) for user in range(few + 1)))
        told = (await ask(store, "honest", f"at {moment}", now=now) or (0, ""))[1]
        assert told == (Reception.CODE if moment == 2 else Reception.TOO_MANY).value
        assert (await ask(store, f"late {moment}", now=now) or (0, ""))[1] == Reception.TOO_MANY.value


async def test_one_person_waits_at_two_accounts_and_each_request_is_decided_alone(store: Store) -> None:
    for account, code in ((None, CODE), ("second", OTHER)):
        source = replace(dm("7", message_id="1"), account=account)
        inbound = Inbound(source=source, text=f"to {account}", at=NOON)
        await store.transact(pairing.request(inbound, key_of(source), NOON, code=code, answer=()))
    assert [each.source.account for each in await store.read(pairing.list_pending(NOON))] == [None, "second"]
    assert await approve(store, OTHER)
    assert [each.source.account for each in await store.read(pairing.list_pending(NOON))] == [None]
    assert await states(store) == ["refused", "waiting"]
    assert await approve(store, CODE)
    assert await states(store) == ["waiting", "waiting"]


async def test_approval_by_name_decides_every_request_of_a_person(store: Store) -> None:
    for account, code in ((None, CODE), ("second", OTHER)):
        source = replace(dm("@a:b", message_id="1"), account=account)
        inbound = Inbound(source=source, text=f"to {account}", at=NOON)
        await store.transact(pairing.request(inbound, key_of(source), NOON, code=code, answer=()))
    await ask(store, "8")
    approved = await approve(store, "telegram:@a%3Ab")
    assert approved is not None
    assert (approved.identity, approved.kept) == ("telegram:@a%3Ab", 2)
    assert [each.identity for each in await store.read(pairing.list_pending(NOON))] == ["telegram:8"]
    assert await states(store) == ["waiting", "waiting", "refused"]
    assert {each.account for each in (await store.read(grants.load_table(GrantTable()))).grants.values()} == {
        None,
        "second",
    }


async def test_where_users_differ_from_server_to_server_so_does_the_grant(store: Store) -> None:
    source = replace(dm("alice"), platform="irc", scope_id="one")
    inbound = Inbound(source=source, text="hi", at=NOON)
    await store.transact(pairing.request(inbound, key_of(source), NOON, code=CODE, answer=()))
    await approve(store)
    assert list((await store.read(grants.load_table(GrantTable()))).grants.values()) == [
        Grant(platform="irc", scope_id="one", user_id="alice")
    ]
