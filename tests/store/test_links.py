"""Links make identities one person; after an unlink nobody reads what they took no part in."""

from datetime import timedelta

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.model.errors import LockedOut, NotFound
from palaver.model.key import DmScope, Scope, SessionKey, Speaker, derive_key
from palaver.model.label import Label
from palaver.model.people import OFFER_LIFETIME
from palaver.model.session import EndReason
from palaver.model.source import Source, identity_of
from palaver.model.turn import Inbound, outbound_to
from palaver.store.conversations import attach, branches, history, sessions, transcript
from palaver.store.people import links, people
from palaver.store.people.people import Offer
from palaver.store.queue import inbox, turn_control, turns
from palaver.store.results import Begun
from palaver.store.status import session_list
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.world import LEASE, NEVER, NOON, OPERATOR, World, answer, dm, group, only_begun

ANN, BEN, CY = dm("a"), dm("b", platform="web"), dm("c", platform="irc")
A, B, C = (identity_of(source) or "" for source in (ANN, BEN, CY))
PER_PERSON = Scope(dm=DmScope.PER_PERSON)


async def link(store: Store, one: str, other: str) -> str:
    return await store.transact(links.link(one, other, NOON, by=one))


async def unlink(store: Store, identity: str) -> set[frozenset[str]]:
    return set((await store.transact(links.unlink(identity, NOON, by=identity))).people)


async def circle(store: Store, source: Source) -> frozenset[str]:
    return (await store.read(people.principal_for(source))).identities


async def key_for(store: Store, source: Source) -> SessionKey:
    linked = await store.read(people.linked_people())
    return derive_key(source, PER_PERSON, Speaker(person=linked.get(identity_of(source) or "")))


class Couple(World):
    """People whose direct chats are one conversation where they are linked."""

    async def exchange_in(
        self, key: SessionKey, source: Source, text: str, *, place: SessionKey | None = None
    ) -> Begun:
        spoken = Source(**{**source.to_json(), "message_id": f"k{next(self._ids)}"})
        inbound = Inbound(source=spoken, text=text, at=self.now)
        await self.store.transact(inbox.accept(inbound, place or key, self.now))
        begin = turns.begin(key, self.worker, self.now, LEASE, NEVER)
        begun = only_begun(await self.store.transact(begin))
        assert begun
        await self.store.transact(turns.settle(begun.turn, [answer(f"re: {text}")], [], self.now))
        return begun

    async def talk(self, source: Source, text: str) -> str:
        """Somebody says something and is answered; gives the session."""
        key = await key_for(self.store, source)
        return (await self.exchange_in(key, source, text)).turn.session

    async def sees(self, source: Source) -> list[str]:
        """Every word in every conversation that somebody may see."""
        principal = await self.store.read(people.principal_for(source))
        page = await self.store.read(session_list.list_sessions(principal))
        texts: list[str] = []
        for preview in page.previews:
            entries = await self.store.read(transcript.load_all(preview.session.id, principal))
            texts += [entry.text for entry in entries]
        return sorted(texts)


@pytest.fixture
def world(store: Store) -> Couple:
    return Couple(store)


def said(*texts: str) -> list[str]:
    return sorted([*texts, *(f"re: {text}" for text in texts)])


# Who is who


async def test_linked_identities_are_the_elder_person_until_they_are_unlinked(store: Store) -> None:
    elder = await store.transact(people.person_of(A, NOON))
    younger = await store.transact(people.person_of(B, NOON.replace(hour=13)))
    assert await link(store, B, A) == elder
    assert await circle(store, ANN) == await circle(store, BEN) == {A, B}
    assert (await store.read(people.find_person(B, OPERATOR))).id == elder
    with pytest.raises(NotFound):
        await store.read(people.find_person(younger, OPERATOR))
    assert await unlink(store, A) == {frozenset({A}), frozenset({B})}
    assert [await store.transact(people.person_of(each, NOON)) for each in (A, B)] == [elder, younger]
    assert await store.read(people.linked_people()) == {}


async def test_linking_again_is_no_second_link_and_unlinking_alone_is_nothing(store: Store) -> None:
    assert await link(store, A, B) == await link(store, B, A)
    assert len(await unlink(store, A)) == 2
    assert await unlink(store, A) == {frozenset({A})}
    assert (await store.transact(links.unlink_last(A, NOON, by=A))).people == ({A},)


async def test_who_goes_goes_alone_and_the_others_stay_together(store: Store) -> None:
    await link(store, A, B)
    await link(store, B, C)
    assert await unlink(store, B) == {frozenset({A, C}), frozenset({B})}
    assert await circle(store, CY) == {A, C}


async def test_the_last_link_is_taken_back_with_all_it_joined(store: Store) -> None:
    await link(store, A, B)
    await link(store, C, "sms:d")
    await link(store, B, C)
    assert await circle(store, ANN) == {A, B, C, "sms:d"}
    unlinked = await store.transact(links.unlink_last(A, NOON, by=A))
    assert set(unlinked.people) == {frozenset({A, B}), frozenset({C, "sms:d"})}
    assert (await store.read(people.principal_of(C))).identities == {C, "sms:d"}


# Offers


def stated(offer: Offer | None) -> tuple[str, str]:
    assert offer
    return offer.mine.identity, offer.theirs.identity


async def test_an_offer_is_entered_once_and_both_have_to_agree(store: Store) -> None:
    await store.transact(links.offer(ANN, Label("Ann"), "hash", NOON))
    entered = await store.transact(links.enter_code(BEN, Label("Ben"), "hash", NOON))
    assert stated(entered) == (B, A)
    assert entered
    assert [each.name for each in entered.theirs.identities] == [Label("Ann")]
    assert entered.theirs.address.chat_id == "a"
    assert await store.transact(links.enter_code(CY, None, "hash", NOON)) is None
    for _ in range(2):
        asked = await store.transact(links.agree(B, NOON))
        assert asked
        assert not asked.linked
    assert await circle(store, ANN) == {A}
    done = await store.transact(links.agree(A, NOON))
    assert done
    assert done.linked
    assert await circle(store, ANN) == {A, B}
    assert await store.transact(links.agree(A, NOON)) is None


async def test_an_offer_ends_by_a_no_by_time_and_by_another_offer(store: Store) -> None:
    await store.transact(links.offer(ANN, None, "one", NOON))
    assert await store.transact(links.enter_code(BEN, None, "one", NOON + OFFER_LIFETIME)) is None
    await store.transact(links.offer(ANN, None, "two", NOON))
    await store.transact(links.offer(ANN, None, "three", NOON))
    assert await store.transact(links.enter_code(BEN, None, "two", NOON)) is None
    assert await store.transact(links.enter_code(BEN, None, "three", NOON))
    assert await store.transact(links.agree(A, NOON + OFFER_LIFETIME)) is None
    assert await store.transact(links.agree(A, NOON))
    assert stated(await store.transact(links.withdraw(B, NOON))) == (B, A)
    assert await store.transact(links.agree(B, NOON)) is None
    assert await circle(store, ANN) == {A}


async def test_a_yes_holds_only_for_the_accounts_that_were_named(store: Store) -> None:
    await store.transact(links.offer(ANN, None, "hash", NOON))
    await store.transact(links.enter_code(BEN, None, "hash", NOON))
    assert await store.transact(links.agree(A, NOON))
    await link(store, B, C)
    changed = await store.transact(links.agree(B, NOON))
    assert changed
    assert changed.changed
    assert await circle(store, ANN) == {A}
    assert await store.transact(links.agree(B, NOON))
    done = await store.transact(links.agree(A, NOON))
    assert done
    assert done.linked
    assert await circle(store, ANN) == {A, B, C}


async def test_too_many_wrong_codes_lock_out_for_a_while(store: Store) -> None:
    await store.transact(links.offer(ANN, None, "hash", NOON))
    for _ in range(5):
        assert await store.transact(links.enter_code(BEN, None, "wrong", NOON)) is None
    with pytest.raises(LockedOut):
        await store.transact(links.enter_code(BEN, None, "hash", NOON))
    for code in (*["wrong"] * 4, "hash", *["wrong"] * 2):  # a right code forgives the wrong ones before it
        assert bool(await store.transact(links.enter_code(CY, None, code, NOON))) == (code == "hash")
    later = NOON.replace(hour=14)
    await store.transact(links.offer(ANN, None, "again", later))
    assert await store.transact(links.enter_code(BEN, None, "again", later))


# Their conversations


async def share(world: Couple, one: str, other: str) -> str | None:
    """Link two who have one conversation per person; return the one they go on with."""
    await link(world.store, one, other)
    session = await world.store.transact(links.continue_last(one, "main", NOON))
    return session.id if session else None


async def test_linked_people_go_on_with_the_conversation_used_last(world: Couple) -> None:
    await world.talk(ANN, "a1")
    world.now += timedelta(minutes=1)
    last = await world.talk(BEN, "b1")
    assert await share(world, A, B) == last
    assert (await world.talk(ANN, "a2"), await world.talk(BEN, "b2")) == (last, last)
    assert await world.texts(last) == ["b1", "re: b1", "a2", "re: a2", "b2", "re: b2"]
    assert await world.sees(ANN) == await world.sees(BEN) == said("a1", "a2", "b1", "b2")
    assert await world.store.read(violations()) == []


async def test_linked_people_go_on_with_no_group_and_with_nothing_that_was_ended(world: Couple) -> None:
    mine = await world.talk(ANN, "a1")
    world.now += timedelta(minutes=1)
    left = (await world.exchange_in(derive_key(BEN, PER_PERSON), BEN, "b1")).turn
    await world.store.transact(sessions.end(left.session_number, EndReason.RESET, world.now))
    await world.exchange_in(derive_key(group("a"), PER_PERSON), group("a"), "in a group")
    assert await share(world, A, B) == mine


async def test_people_without_a_conversation_start_one_together(world: Couple) -> None:
    assert await share(world, A, B) is None
    assert await world.talk(ANN, "a1") == await world.talk(BEN, "b1")


async def test_each_is_back_in_the_conversation_before_the_link(world: Couple) -> None:
    mine = await world.talk(ANN, "a1")
    world.now += timedelta(minutes=1)
    yours = await world.talk(BEN, "b1")
    await share(world, A, B)
    await world.talk(BEN, "b2")
    await unlink(world.store, B)
    assert (await world.talk(ANN, "a3"), await world.talk(BEN, "b3")) == (mine, yours)
    assert await world.sees(ANN) == said("a1", "a3")
    assert await world.sees(BEN) == said("b1", "b2", "b3")
    assert await world.store.read(violations()) == []


async def test_what_both_wrote_in_ends_and_stays_readable_for_both(world: Couple) -> None:
    mine = await world.talk(ANN, "a1")
    world.now += timedelta(minutes=1)
    await world.talk(BEN, "b1")
    common = await share(world, A, B)
    assert common
    await world.talk(ANN, "a2")
    unlinked = await world.store.transact(links.unlink(B, NOON, by=B))
    assert [session.id for session in unlinked.common] == [common]
    assert await world.talk(ANN, "a3") == mine
    assert await world.talk(BEN, "b3") != common
    assert await world.sees(ANN) == said("a1", "a2", "b1", "a3")
    assert await world.sees(BEN) == said("b1", "a2", "b3")
    assert await world.texts(common) == ["b1", "re: b1", "a2", "re: a2"]
    assert await world.store.read(violations()) == []


@pytest.mark.parametrize("source", [ANN, BEN])
async def test_nobody_goes_on_in_what_both_wrote_in(world: Couple, source: Source) -> None:
    await world.talk(ANN, "a1")
    common = await share(world, A, B)
    await world.talk(BEN, "b1")
    await unlink(world.store, A)
    key, principal = await key_for(world.store, source), await world.store.read(people.principal_for(source))
    await world.store.transact(history.back(key, NOON, principal=principal))
    assert await world.talk(source, "later") != common
    assert "later" not in await world.sees(ANN if source is BEN else BEN)


async def test_those_who_stay_linked_are_back_in_the_conversation_they_shared(world: Couple) -> None:
    await world.talk(ANN, "a1")
    shared = await share(world, A, B)
    await world.talk(BEN, "b1")
    world.now += timedelta(minutes=1)
    theirs = await world.talk(CY, "c1")
    assert await share(world, B, C) == theirs
    await unlink(world.store, C)
    assert await world.talk(ANN, "a2") == await world.talk(BEN, "b2") == shared
    assert await world.talk(CY, "c2") == theirs
    assert await world.sees(ANN) == await world.sees(BEN) == said("a1", "b1", "a2", "b2")
    assert await world.sees(CY) == said("c1", "c2")
    assert await world.store.read(violations()) == []


async def test_what_waits_goes_to_the_conversations_of_those_they_are_now(world: Couple) -> None:
    await link(world.store, A, B)
    key = await key_for(world.store, ANN)
    common = (await world.exchange_in(key, ANN, "a1")).turn.session
    for source, text in ((BEN, "b1"), (ANN, "a2")):
        inbound = Inbound(source=source, text=text, at=NOON)
        await world.store.transact(inbox.accept(inbound, key, NOON))
    await unlink(world.store, A)
    assert await world.store.read(inbox.list_ready(9)) == [await key_for(world.store, each) for each in (BEN, ANN)]
    begun = only_begun(
        await world.store.transact(turns.begin(await key_for(world.store, BEN), "w", NOON, LEASE, NEVER))
    )
    assert begun
    assert begun.turn.session != common
    assert await world.texts(begun.turn.session) == ["b1"]
    assert await world.store.read(violations()) == []


async def switch(world: Couple, source: Source, session: str) -> None:
    principal = await world.store.read(people.principal_for(source))
    key = await key_for(world.store, source)
    await world.store.transact(sessions.switch(key, source, session, principal, NOON, by=principal.name))


PER_CHAT = (derive_key(ANN, Scope()), derive_key(BEN, Scope()))


async def test_a_resumed_conversation_goes_back_to_its_owner(world: Couple) -> None:
    mine = (await world.exchange_in(PER_CHAT[0], ANN, "a1")).turn.session
    yours = (await world.exchange_in(PER_CHAT[1], BEN, "b1")).turn.session
    await link(world.store, A, B)
    principal = await world.store.read(people.principal_for(BEN))
    await world.store.transact(sessions.switch(PER_CHAT[1], BEN, mine, principal, NOON, by=B))
    await unlink(world.store, B)
    assert (await world.exchange_in(PER_CHAT[1], BEN, "b2")).turn.session == yours
    assert await world.store.read(violations()) == []


@pytest.mark.parametrize("spoke", [False, True])
async def test_back_does_not_lead_to_what_was_said_after_the_unlink(world: Couple, spoke: bool) -> None:
    mine = (await world.exchange_in(PER_CHAT[0], ANN, "a1")).turn.session
    await world.exchange_in(PER_CHAT[1], BEN, "b1")
    await link(world.store, A, B)
    principal = await world.store.read(people.principal_for(BEN))
    await world.store.transact(sessions.switch(PER_CHAT[1], BEN, mine, principal, NOON, by=B))
    if spoke:
        await world.exchange_in(PER_CHAT[1], BEN, "b2")
    await world.store.transact(sessions.reset(PER_CHAT[1], BEN, NOON, by=B))
    await unlink(world.store, A)
    for _ in range(3):
        alone = await world.store.read(people.principal_for(BEN))
        try:
            await world.store.transact(history.back(PER_CHAT[1], NOON, principal=alone))
        except NotFound:
            break
    for source, key, later in ((ANN, PER_CHAT[0], "a9"), (BEN, PER_CHAT[1], "b9")):
        await world.exchange_in(key, source, later)
    assert "a9" not in await world.sees(BEN)
    assert "b9" not in await world.sees(ANN)
    assert await world.store.read(violations()) == []


async def test_a_branch_belongs_to_the_account_that_made_it(world: Couple) -> None:
    mine = (await world.exchange_in(PER_CHAT[0], ANN, "a1")).turn.session
    await link(world.store, A, B)
    principal = await world.store.read(people.principal_for(BEN))
    await world.store.transact(branches.branch(PER_CHAT[1], BEN, principal, NOON, by=B, from_session=mine))
    await world.exchange_in(PER_CHAT[1], BEN, "b1")
    await unlink(world.store, B)
    assert await world.sees(BEN) == said("a1", "b1")
    assert await world.sees(ANN) == said("a1")


@pytest.mark.parametrize("way", ["resumed", "spoke", "attached"])
async def test_a_conversation_of_others_is_left_by_who_came_through_the_link(world: Couple, way: str) -> None:
    place, other = group("a"), group("x")
    key = derive_key(place, Scope(thread=Scope().thread))._replace(user="")
    session = (await world.exchange_in(key, place, "a1")).turn.session
    await world.exchange_in(key, other, "x1")
    await link(world.store, A, B)
    spoken: list[str] = []
    if way == "attached":
        await world.store.transact(_attach(session, BEN))
        await world.exchange_in(key, BEN, "b0", place=PER_CHAT[1])
        spoken = ["b0"]
    else:
        await switch(world, BEN, session)
    if way == "spoke":
        await world.exchange_in(await key_for(world.store, BEN), BEN, "b0")
        spoken = ["b0"]
    assert "x1" in await world.sees(BEN)
    await unlink(world.store, B)
    assert await world.sees(BEN) == []
    assert await world.sees(ANN) == await world.sees(other) == said("a1", "x1", *spoken)
    assert await world.texts((await world.exchange_in(PER_CHAT[1], BEN, "b1")).turn.session) == ["b1", "re: b1"]
    assert await world.store.read(violations()) == []


@transaction
def _attach(session: str, source: Source) -> Statements[None]:
    principal = yield from people.principal_for(source)
    found = yield from attach.find_attachable(session, derive_key(source, Scope()), principal)
    farewell = outbound_to(source, "parted")
    yield from attach.attach(derive_key(source, Scope()), found, NOON, by=identity_of(source) or "", farewell=farewell)


async def test_a_group_in_which_both_speak_stays_for_both(world: Couple) -> None:
    both = [
        Source(**{**source.to_json(), "platform": "telegram", "chat_kind": "group", "chat_id": "-1"})
        for source in (ANN, dm("b"))
    ]
    key = derive_key(both[0], Scope())._replace(user="")
    for source, text in zip(both, ("a1", "b1"), strict=True):
        await world.exchange_in(key, source, text)
    await link(world.store, A, "telegram:b")
    await unlink(world.store, A)
    assert await world.sees(both[0]) == await world.sees(both[1]) == said("a1", "b1")


async def test_a_group_keeps_its_conversation_when_somebody_in_it_is_parted(world: Couple) -> None:
    both = [group("b"), group("a")]
    key = derive_key(both[0], Scope())._replace(user="")
    for source, text in zip(both, ("b1", "a1"), strict=True):
        await world.exchange_in(key, source, text)
    one, other = (identity_of(source) or "" for source in both)
    await link(world.store, one, other)
    await world.store.transact(sessions.reset(key, both[0], NOON, by=one))
    await unlink(world.store, one)
    assert await world.store.read(violations()) == []
    await world.exchange_in(key, both[1], "a2")


async def test_search_finds_what_was_common_for_those_who_took_part(world: Couple) -> None:
    await link(world.store, A, B)
    await world.talk(ANN, "apple")
    await world.talk(BEN, "banana")
    await unlink(world.store, A)
    await world.talk(ANN, "cherry")
    for source, found in ((ANN, {"apple": 2, "banana": 2, "cherry": 2}), (BEN, {"apple": 2, "banana": 2, "cherry": 0})):
        principal = await world.store.read(people.principal_for(source))
        assert {word: len(await world.store.search.find(word, principal)) for word in found} == found


async def test_a_turn_at_work_in_common_is_stopped_first(world: Couple) -> None:
    await link(world.store, A, B)
    await world.talk(ANN, "a1")
    await world.talk(BEN, "b1")
    key = await key_for(world.store, ANN)
    await world.store.transact(inbox.accept(Inbound(source=BEN, text="b2", at=NOON), key, NOON))
    begun = only_begun(await world.store.transact(turns.begin(key, "w", NOON, LEASE, NEVER)))
    assert begun
    assert (await world.store.transact(links.unlink(A, NOON, by=A))).is_busy
    assert await circle(world.store, ANN) == {A, B}
    assert (await world.store.read(turn_control.read_signals(begun.turn))).stop
    await world.store.transact(turns.settle(begun.turn, [], [], NOON))
    assert len(await unlink(world.store, A)) == 2
