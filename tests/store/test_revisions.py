"""A change of a message counts once, for its author, in its order; what was said stays in the record."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.model.compaction import plan_compaction
from palaver.model.revision import RevisionPolicy
from palaver.model.session import Principal
from palaver.model.source import Source
from palaver.model.split import ReplyRoutes
from palaver.model.turn import Inbound, InboxState, Outbound, Received, Revision
from palaver.store.conversations import branches, deletion, history, sessions, transcript
from palaver.store.queue import commands, inbox, revisions, turns
from palaver.store.status.invariants import violations
from palaver.store.status.trace import find_traces
from palaver.store.store import Store
from tests.store.world import OPERATOR, World, answer, dm, group, key_of

ANN = Principal(identities=frozenset({"telegram:7"}))
NOTE, RERUN, IGNORE = RevisionPolicy.NOTE, RevisionPolicy.RERUN, RevisionPolicy.IGNORE


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def change(
    world: World,
    message: str,
    text: str | None,
    policy: RevisionPolicy = NOTE,
    *,
    source: Source | None = None,
    version: str = "v1",
    ago: float = 0.0,
) -> Received | None:
    """Somebody changes a message, or deletes it; gives what became of that, None for a redelivery."""
    source = replace(source or dm(), message_id=message)
    revision = Revision(version=version, deleted=text is None)
    inbound = Inbound(source=source, text=text or "", at=world.now - timedelta(seconds=ago), revision=revision)
    accept = revisions.accept_revision(inbound, key_of(source), world.now, policy)
    number = await world.store.transact(accept)
    assert await world.store.read(violations()) == []
    return await row(world, number) if number else None


async def row(world: World, number: int) -> Received:
    found = await world.store.read(inbox.get_message(number, OPERATOR))
    assert found
    return found


def notices(hidden: int) -> list[Outbound]:
    return [Outbound(platform="telegram", chat_id="7", text=f"{hidden} gone")]


async def go_back(world: World, received: Received) -> bool:
    hides = await world.store.read(revisions.count_rewound(received))
    done = await world.store.transact(revisions.rewind_to(received, world.now, notices(hides), hides=hides))
    assert await world.store.read(violations()) == []
    return bool(done)


# Before the answer


async def test_a_message_that_waits_is_replaced_where_it_stands_and_what_it_said_is_kept(world: World) -> None:
    first, second = await world.say("helo", id_="m1"), await world.say("second", id_="m2")
    world.later(seconds=1)
    await change(world, "m1", "hallo", IGNORE, version="v0")
    world.later(seconds=1)
    changed = await change(world, "m1", "hello", IGNORE)
    assert changed
    assert (changed.state, changed.reason) == (
        InboxState.DONE,
        "the queued message has the new text",
    )
    begun = await world.begin(collects=True)
    assert begun
    assert [message.number for message in begun.messages] == [first, second]
    assert [message.inbound.text for message in begun.messages] == ["hello", "second"]
    assert begun.messages[0].inbound.earlier == ("helo", "hallo")
    assert await world.texts(begun.turn.session) == ["hello", "second"]


async def test_a_message_that_waits_is_withdrawn_and_nothing_is_left_in_the_line(world: World) -> None:
    number = await world.say("oops", id_="m1")
    await change(world, "m1", None)
    found = await row(world, number or 0)
    assert (found.state, found.reason, found.inbound.text) == (
        InboxState.DONE,
        "it was deleted before it was answered",
        "oops",
    )
    assert await world.store.read(inbox.list_ready(9)) == []


@pytest.mark.parametrize("text", ["hello", None])
async def test_a_change_that_overtakes_its_message_counts_when_that_comes(world: World, text: str | None) -> None:
    await change(world, "m1", "hallo", version="v0")
    world.later(seconds=1)
    early = await change(world, "m1", text)
    assert early
    assert early.reason == "the original message has not arrived"
    number = await world.say("helo", id_="m1")
    assert (await row(world, early.number)).reason == f"it arrived before in:{number} and applies"
    found = await row(world, number or 0)
    if text is None:
        assert (found.state, found.inbound.text) == (InboxState.DONE, "helo")
    else:
        assert (found.inbound.text, found.inbound.earlier) == ("hello", ("helo",))
    assert await world.store.read(violations()) == []


async def test_an_early_change_of_somebody_else_does_not_count(world: World) -> None:
    await change(world, "m1", "forged", source=replace(dm(), user_id="8"))
    number = await world.say("mine", id_="m1")
    assert (await row(world, number or 0)).inbound.text == "mine"


# After the answer


async def test_a_change_is_accepted_once_however_many_try_at_once(world: World) -> None:
    begun = await world.exchange("one")
    found = await asyncio.gather(*(change(world, "m1", "eins") for _ in range(5)))
    assert len([each for each in found if each]) == 1
    notes = [text for text in await world.texts(begun.turn.session) if "edited an earlier message" in text]
    assert len(notes) == 1


async def test_a_later_change_that_was_made_earlier_does_not_count(world: World) -> None:
    begun = await world.exchange("one")
    world.later(minutes=1)
    await change(world, "m1", "newest", version="v2")
    stale = await change(world, "m1", "older", version="v1", ago=30)
    assert stale
    assert (stale.state, stale.reason) == (InboxState.REFUSED, "a newer revision arrived first")
    again = await change(world, "m1", "newest", version="v3")
    assert again
    assert again.reason == "the text is unchanged"
    assert len(await world.texts(begun.turn.session)) == 3


@pytest.mark.parametrize("text", ["forged", None])
@pytest.mark.parametrize("policy", [NOTE, RERUN])
async def test_nobody_changes_what_somebody_else_has_said(
    world: World, text: str | None, policy: RevisionPolicy
) -> None:
    begun = await world.exchange("mine", source=group("7"))
    refused = await change(world, "m1", text, policy, source=group("8"))
    assert refused
    assert (refused.state, refused.reason) == (InboxState.REFUSED, "the original message is from someone else")
    assert await world.texts(begun.turn.session) == ["mine", "yes"]


async def test_a_deletion_of_which_the_platform_names_no_author_finds_its_conversation(world: World) -> None:
    begun = await world.exchange("mine", source=group("7"))
    nobody = Source(platform="telegram", chat_kind="group", chat_id="-100")
    done = await change(world, "m1", None, source=nobody)
    assert done
    assert done.key == key_of(group("7"))
    assert "mine" not in await world.texts(begun.turn.session)
    edit = await change(world, "m1", "forged", source=nobody, version="v2")
    assert edit
    assert edit.state is InboxState.REFUSED


async def test_what_was_obeyed_refused_or_is_unknown_stays_as_it_is(world: World) -> None:
    source = dm(message_id="m1")
    refused = Inbound(source=source, text="x", at=world.now)
    await world.store.transact(inbox.accept(refused, key_of(source), world.now, refused="a stranger"))
    found = await change(world, "m1", "y", RERUN)
    assert found
    assert (found.reason, found.inbound.text) == ("the original message was refused", "")
    number = await world.say("/new", id_="m2")
    await world.store.transact(
        commands.run_command(await row(world, number or 0), _nothing(), ReplyRoutes(), world.now)
    )
    found = await change(world, "m2", "/restart", RERUN)
    assert found
    assert (found.state, found.reason) == (
        InboxState.DONE,
        "the message already ran as a command or was withdrawn",
    )
    found = await change(world, "m3", "y", RERUN)
    assert found
    assert found.reason == "the original message has not arrived"


@transaction
def _nothing() -> Statements[str]:
    yield from ()
    return ""


async def test_an_ignored_change_leaves_everything(world: World) -> None:
    begun = await world.exchange("one")
    found = await change(world, "m1", None, IGNORE)
    assert found
    assert found.reason == "this chat ignores edits and deletions"
    assert await world.texts(begun.turn.session) == ["one", "yes"]


async def test_a_session_that_ended_hears_of_it_too_and_what_a_branch_copied_is_hidden_as_well(world: World) -> None:
    begun = await world.exchange("canary")
    branch = branches.branch(key_of(dm()), dm(), ANN, world.now, by="ann")
    child = await world.store.transact(branch)
    await change(world, "m1", None)
    for session in (begun.turn.session, child.id):
        texts = await world.texts(session)
        assert "canary" not in texts
        assert "deleted an earlier message" in texts[-1]
    assert await world.store.search.find("canary", OPERATOR) == []


# Answered anew


async def test_only_the_last_of_several_changes_is_answered_and_back_shows_what_was(world: World) -> None:
    begun = await world.exchange("one")
    await world.exchange("two")
    before = await world.store.read(transcript.load_visible(begun.turn.session, OPERATOR))
    first = await change(world, "m1", "eins", RERUN, version="v1")
    world.later(seconds=1)
    last = await change(world, "m1", "uno", RERUN, version="v2")
    assert first
    assert last
    assert (await row(world, first.number)).state is InboxState.DONE
    assert await go_back(world, last)
    assert await world.texts(begun.turn.session) == []
    again = await world.begin()
    assert again
    assert [(message.number, message.inbound.text) for message in again.messages] == [(last.number, "uno")]
    assert again.messages[0].inbound.earlier == ("one",)
    await world.store.transact(turns.settle(again.turn, [answer("si")], [], world.now))
    assert await world.texts(begun.turn.session) == ["uno", "si"]
    world.later(seconds=1)
    await world.store.transact(history.back(key_of(dm()), world.now, principal=ANN))
    assert await world.store.read(transcript.load_visible(begun.turn.session, OPERATOR)) == before
    assert await world.store.read(violations()) == []


@pytest.mark.parametrize("text", ["uno", None])
async def test_a_change_of_what_waits_to_be_answered_anew_replaces_it(world: World, text: str | None) -> None:
    begun = await world.exchange("one")
    changed = await change(world, "m1", "eins", RERUN)
    assert changed
    assert await go_back(world, changed)
    await change(world, "m1", text, RERUN, version="v2")
    again = await world.begin()
    taken = [message.inbound.text for message in again.messages] if again else []
    assert taken == ([text] if text else [])
    assert await world.texts(begun.turn.session) == ([text] if text else [])


@pytest.mark.parametrize("text", ["eins", None])
async def test_of_several_messages_that_one_turn_answered_only_the_changed_one_counts(
    world: World, text: str | None
) -> None:
    for each in ("one", "two", "three"):
        await world.say(each)
    begun = await world.begin(collects=True)
    assert begun
    await world.store.transact(turns.settle(begun.turn, [answer()], [], world.now))
    await change(world, "m2", text)
    *said, note = await world.texts(begun.turn.session)
    assert said == (["one", "two", "three", "yes"] if text else ["one", "three", "yes"])
    assert [each in note for each in ("one", "two", "three")] == [False, bool(text), False]


async def test_the_new_words_can_be_changed_again(world: World) -> None:
    begun = await world.exchange("one")
    for version, text in enumerate(("eins", "uno")):
        changed = await change(world, "m1", text, RERUN, version=str(version))
        assert changed
        assert await go_back(world, changed)
        again = await world.begin()
        assert again
        await world.store.transact(turns.settle(again.turn, [answer(f"re {text}")], [], world.now))
    assert await world.texts(begun.turn.session) == ["uno", "re uno"]


async def test_a_deleted_message_takes_along_what_followed_and_that_is_said_once(world: World) -> None:
    begun = await world.exchange("one")
    await world.exchange("two")
    await world.exchange("three")
    deleted = await change(world, "m2", None, RERUN)
    assert deleted
    assert await go_back(world, deleted)
    assert await go_back(world, deleted)
    assert await world.texts(begun.turn.session) == ["one", "yes"]
    assert await world.store.read(inbox.list_ready(9)) == []
    rows = await world.store.read(find_traces(f"in:{deleted.number}", OPERATOR))
    assert [sending.delivery.outbound.text for sending in rows[0].deliveries] == ["4 gone"]


async def test_a_change_takes_nothing_back_in_a_session_that_begun_since_or_under_a_summary(world: World) -> None:
    for text in ("one", "two", "three"):
        begun = await world.exchange(text)
    entries = await world.store.read(transcript.load_visible(begun.turn.session, OPERATOR))
    plan = plan_compaction(entries, keep_exchanges=1)
    await world.store.transact(transcript.compact(key_of(dm()), plan, "short", world.now, by="me"))
    await world.store.transact(sessions.reset(key_of(dm()), dm(), world.now, by="me"))
    fresh, *_ = [await world.exchange("anew") for _ in range(4)]
    for message in ("m1", "m3"):
        changed = await change(world, message, "changed", RERUN)
        assert changed
        assert await world.store.read(revisions.count_rewound(changed)) == 0
        assert await go_back(world, changed)
    assert await world.texts(fresh.turn.session) == ["anew", "yes"] * 4


async def test_a_deletion_takes_along_the_notes_about_its_own_message_only(world: World) -> None:
    await world.exchange("the same")
    begun = await world.exchange("the same")
    await change(world, "m1", "changed")
    await change(world, "m2", None)
    *said, about_edit, about_deletion = await world.texts(begun.turn.session)
    assert said == ["the same", "yes", "yes"]
    assert "changed" in about_edit
    assert "deleted" in about_deletion


async def test_while_a_turn_runs_nothing_goes_back(world: World) -> None:
    await world.exchange("one")
    await world.say("two")
    await world.begin()
    changed = await change(world, "m1", "eins", RERUN)
    assert changed
    assert not await go_back(world, changed)
    assert (await row(world, changed.number)).state is InboxState.WAITING


async def test_what_was_taken_back_meanwhile_is_not_answered_anew(world: World) -> None:
    begun = await world.exchange("one")
    changed = await change(world, "m1", "eins", RERUN)
    assert changed
    await world.store.transact(transcript.undo(key_of(dm()), 1, world.now, principal=ANN))
    assert await go_back(world, changed)
    assert (await row(world, changed.number)).state is InboxState.DONE
    assert await world.texts(begun.turn.session) == []


async def test_what_is_answered_again_is_changed_where_it_is_answered_again(world: World) -> None:
    await world.exchange("canary")
    number = await world.say("/retry", id_="m2")
    command = await row(world, number or 0)
    await world.store.transact(branches.retry(command, ANN, world.now))
    await world.store.transact(commands.run_command(command, _nothing(), ReplyRoutes(), world.now))
    again = await world.begin()
    assert again
    await world.store.transact(turns.settle(again.turn, [answer("again")], [], world.now))
    await change(world, "m1", None)
    assert "canary" not in await world.texts(again.turn.session)


# What became of it


async def test_a_trace_shows_the_changes_of_a_message(world: World) -> None:
    await world.exchange("one")
    await change(world, "m1", "eins")
    (trace,) = await world.store.read(find_traces("m1", OPERATOR))
    assert [(each.number, each.reason) for each in trace.messages] == [
        (1, None),
        (2, "the agent sees a note with its next turn"),
    ]
    await change(world, "m9", "unknown")
    (trace,) = await world.store.read(find_traces("telegram:7:m9", OPERATOR))
    assert trace.messages[0].reason == "the original message has not arrived"


async def test_with_a_session_the_words_of_changes_go_too(world: World) -> None:
    begun = await world.exchange("one")
    await change(world, "m1", "canary")
    await world.store.transact(deletion.delete(begun.turn.session, OPERATOR, world.now))
    (trace,) = await world.store.read(find_traces("in:2", OPERATOR))
    assert trace.messages[0].inbound is None
