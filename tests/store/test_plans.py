"""What is asked again and again is found through an index, however much has piled up."""

from datetime import timedelta
from pathlib import Path

import pytest

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.model.access import Grant, Reach, Way
from palaver.model.memory import MemoryScope
from palaver.model.revision import RevisionPolicy
from palaver.model.session import Principal
from palaver.model.turn import Cause, Inbound, Outbound, Revision
from palaver.store.conversations import attach, attachments, deletion, expiry, sessions, titles, undo_log
from palaver.store.opening import open_store
from palaver.store.people import links, memory, pairing, usage
from palaver.store.queue import answered, inbox, outbox, revisions, turn_control, turns
from palaver.store.results import OperationKind, RepeatSafety
from palaver.store.status import chat_list, message_status
from tests.store.world import LEASE, NOON, OPERATOR, World, cause, dm, key_of

NOTICE = Outbound(platform="telegram", account="b", chat_id="7", text="hello")
CHANGED = Inbound(source=dm(message_id="m1"), text="hello!", at=NOON, revision=Revision(version="2"))
CALLED = Inbound(source=dm(message_id="m1"), text="hello", at=NOON, cause=Cause.CALL, request_key="r1")
HERE = Grant(platform="telegram", chat_id="-100")
REACHING = Principal(
    identities=frozenset({"telegram:8", "web:8"}),
    placed=(("telegram:8", Reach(platform="telegram", ways=(Way((HERE,), ()),), anywhere=True)),),
)
ASKED = {
    "claimable": inbox.list_ready(16),
    "claim": outbox.claim("w1", NOON, LEASE, accounts=["telegram:b"]),
    "claim for several": outbox.claim("w1", NOON, LEASE, accounts=["telegram:b", "web:"]),
    "hasten": outbox.make_due_now("telegram", "b", "7", NOON),
    "silent": expiry.list_idle(NOON - timedelta(hours=1), NOON, None, 100),
    "notes about a person": memory.list_notes(MemoryScope(profile="main", identity="telegram:7")),
    "notes of a chat": memory.list_notes(MemoryScope(profile="main", identity=None, place=key_of(dm("9")))),
    "routed": sessions.routed_session(key_of(dm("9"))),
    "titled": sessions.create(key_of(dm("9")), dm("9"), NOON, title="Plans"),
    "newest": undo_log.latest(key_of(dm("9")), 1, *OperationKind),
    "part": attach.detach_all(key_of(dm("9")), NOON),
    "changed": revisions.accept_revision(CHANGED, key_of(dm()), NOON, RevisionPolicy.NOTE),
    "spent": usage.total(NOON, ["telegram:7"]),
    "fold": usage.sum_ended_turns(),
    "finalise": expiry.list_unfinalised(100),
    "let go": attachments.drop_sent(),
    "held": attachments.list_referenced("", 100),
    "awaited": attachments.awaited_handles(),
    "wipe sent codes": pairing.wipe_sent_codes(),
    "reclaim": turns.reclaim("w1", NOON, LEASE),
    "stop": turn_control.request_stop(key_of(dm()), NOON, by="telegram:7"),
    "stop all": turns.interrupt_all("w1", NOON),
    "questions": turn_control.questions_shown(dm()),
    "reclaim sends": outbox.reclaim_sends("w1", NOON, safe=RepeatSafety()),
    "charge": usage.charge_to_previous(1),
    "called": inbox.accept(CALLED, key_of(dm()), NOON),
    "requested": message_status.find_request(dm(), "r1", OPERATOR),
    "given results": message_status.find_result_request(dm(), "r1", OPERATOR),
    "answered": answered.find_quote(dm(), "m9"),
    "chats": chat_list.list_chats(Principal.speaking(dm("8")), "telegram:8"),
    "chats in reach": chat_list.list_chats(REACHING, "telegram:8"),
    "link": links.continue_last("telegram:8", "main", NOON),
    "unlink": links.unlink("telegram:8", NOON, by="telegram:8"),
    "by title": sessions.find("Plans", Principal.speaking(dm("8"))),
}
SHORT = (
    "set_aside",
    "attached_chats",
    "inbox_waiting",
    "ready_queue_in_order",
    "one_open_turn_per_key",
    "outbox_in_order",
    "sessions_to_finalise",
    "wiped_after_send",
    " few",
    " pinned",
    " u",
    " h",
    " owed",
    " c",
    " k",
    " CONSTANT ROWS",
)
"""What waits, is open, is owed or is due, and what was found before."""


@transaction
def plans(of: Transaction[object]) -> Statements[list[str]]:
    """How SQLite finds what each statement of the work is about."""
    steps, found = iter(of), list[str]()
    try:
        statement = next(steps)
        while True:
            rows = []
            if isinstance(statement, tuple) and isinstance(statement[1], tuple):
                found += [row[3] for row in (yield "EXPLAIN QUERY PLAN " + statement[0], statement[1])]
                rows = yield statement
            statement = steps.send(rows)
    except StopIteration:
        return found


@pytest.mark.parametrize("name", ASKED)
async def test_no_table_is_read_as_a_whole(tmp_path: Path, name: str) -> None:
    async with await open_store(str(tmp_path / "p.db")) as store:
        world = World(store)
        await world.say("hello")
        begun = await world.exchange("hello", source=dm("8"))
        await world.exchange("hello", source=dm("6"))
        await store.transact(links.link("telegram:8", "telegram:6", NOON, by="telegram:8"))
        await store.transact(titles.rename(begun.turn.session, "Plans", OPERATOR))
        await store.transact(outbox.enqueue(NOTICE, cause("notice"), NOON))
        steps = await store.transact(plans(ASKED[name]))
        assert steps
        assert [step for step in steps if step.startswith("SCAN") and not step.endswith(SHORT)] == []
        if name == "hasten":
            assert "outbox_in_order" in steps[0]
        if name == "answered":
            assert "outbox_of_receipt" in steps[0]


async def test_a_deletion_reads_no_table_as_a_whole(tmp_path: Path) -> None:
    async with await open_store(str(tmp_path / "p.db")) as store:
        begun = await World(store).exchange("hello")
        steps = await store.transact(plans(deletion.delete(begun.turn.session, OPERATOR, NOON)))
        steps += await store.transact(plans(_sent_by("telegram:7")))
        assert [step for step in steps if step.startswith("SCAN") and not step.endswith(SHORT)] == []


@transaction
def _sent_by(identity: str) -> Statements[None]:
    yield "SELECT no FROM inbox WHERE no > ? AND identity IN (?) ORDER BY no LIMIT 500", (0, identity)
