"""Every column that can hold content is known, and an erasure leaves planted words in none of them."""

from palaver.db.transaction import Row, Statements, transaction
from palaver.store.damage.losses import record_loss
from palaver.store.records import json_text
from palaver.store.store import Store
from tests.store.test_forgetting import ANN, ID, NAME, OTHERS, SECRET, forget, live
from tests.store.world import NOON

WORDS = (SECRET, ID, NAME)
PLANTED = {
    **{
        ("turns", column): ("identity = ?", ANN)
        for column in ("error", "draft", "pending_call", "approvals", "stopped_by")
    },
    ("accounts", "last_error"): ("platform = ?", "telegram"),
    ("home_channels", "name"): ("address LIKE ?", f'%"chat_id":"{ID}"%'),
    ("firings", "reason"): ("schedule_no IN (SELECT no FROM schedules WHERE owner = ?)", ANN),
    ("inbox", "reason"): ("identity = ?", ANN),
    ("outbox", "error"): ("chat = ?", ID),
    ("outbox", "receipt"): ("chat = ?", ID),
}
"""Columns that `live` leaves empty, with the condition for rows of the person."""
WITHOUT_CONTENT = [
    "access_log.kind",
    "accounts.account",
    "accounts.platform",
    "accounts.worker",
    "agent_problems.failure",
    "agent_problems.model",
    "agent_problems.profile",
    "api_tokens.digest",
    "api_tokens.kind",
    "api_tokens.profile",
    "api_tokens.rights",
    "attachments.kind",
    "attachments.sha256",
    "chat_moves.account",
    "chat_moves.server",
    "deleted_sessions.id",
    "entries.role",
    "erased_digests.digest",
    "erased_digests.kind",
    "erasures.actor",
    "erasures.answer",
    "gone_chats.server",
    "grants.account",
    "grants.basis",
    "grants.effect",
    "grants.kind",
    "grants.platform",
    "grants.role",
    "grants.scope_id",
    "home_channels.platform",
    "home_channels.profile",
    "inbox.account",
    "inbox.message_id",
    "inbox.platform",
    "inbox.request_key",
    "inbox.server",
    "inbox.state",
    "inbox.tenant",
    "inbox.version",
    "journal.kind",
    "link_offers.code_hash",
    "memory_notes.profile",
    "meta.name",
    "meta.value",
    "operations.kind",
    "outbox.account",
    "outbox.cause_detail",
    "outbox.cause_id",
    "outbox.cause_kind",
    "outbox.server",
    "outbox.state",
    "outbox.worker",
    "pairings.account",
    "pairings.code_hash",
    "processes.backend",
    "processes.exit_notice",
    "processes.home",
    "processes.host",
    "processes.id",
    "processes.pid_started",
    "processes.worker",
    "result_requests.digest",
    "result_requests.request_key",
    "retention_skipped.source",
    "schedules.basis",
    "schedules.model",
    "schedules.role",
    "schedules.rule",
    "sessions.end_reason",
    "sessions.finalised_by",
    "sessions.id",
    "sessions.override",
    "sessions.parent",
    "sessions.platform",
    "sessions.profile",
    "set_aside.from_table",
    "set_aside.reason",
    "title_usage.model",
    "turns.failure",
    "turns.model",
    "turns.quota",
    "turns.state",
    "turns.worker",
    "usage.model",
    "wiped_after_send.cause_id",
    "wiped_after_send.cause_kind",
]
"""States, kinds, our own ids and digests."""
NOT_PLANTED = [
    "aliases.alias",
    "aliases.canonical",
    "aliases.platform",
    "api_tokens.identity",
    "api_tokens.name",
    "attached_chats.actor",
    "attached_chats.key",
    "attached_chats.place",
    "chat_moves.chat",
    "erasures.subject",
    "gone_chats.account",
    "gone_chats.chat",
    "gone_chats.error",
    "grants.chat_id",
    "grants.person",
    "identities.original_person",
    "identities.person",
    "inbox.alt_chat",
    "inbox.chat_user",
    "inbox.place",
    "link_offers.address",
    "link_offers.agreed_by",
    "link_offers.guest",
    "link_offers.guest_address",
    "link_offers.identity",
    "link_offers.stated_accounts",
    "links.actor",
    "links.one",
    "links.other",
    "links.until_by",
    "operations.details",
    "operations.from_key",
    "operations.from_session",
    "operations.key",
    "operations.to_key",
    "pairings.identity",
    "people.id",
    "ready_queue.key",
    "result_requests.identity",
    "routes.settings",
    "session_marks.identity",
    "sessions.instructions",
    "usage.identity",
    "wrong_codes.identity",
]
"""Can hold names or content of features that `live` does not use: nothing is planted here yet."""


@transaction
def _columns() -> Statements[list[tuple[str, str]]]:
    """Return every text and binary column, except those of the search index."""
    sql = (
        "SELECT /*pg table_name::text, column_name::text FROM information_schema.columns"
        " WHERE table_schema = current_schema() AND data_type IN ('text', 'bytea') ORDER BY 1, 2 --*/ m.name, c.name"
        " FROM sqlite_master m JOIN pragma_table_info(m.name) c"
        " WHERE m.type = 'table' AND c.type IN ('TEXT', 'BLOB') ORDER BY 1, 2"
    )
    rows = yield sql, ()
    return [(row[0], row[1]) for row in rows if not row[0].startswith("search_")]


@transaction
def _values(table: str, column: str) -> Statements[list[Row]]:
    return (yield f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL", ())  # noqa: S608 - from the schema


async def _columns_with(store: Store, words: tuple[str, ...]) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for table, column in await store.read(_columns()):
        texts = [_text(row[0]) for row in await store.read(_values(table, column))]
        if any(word in text for text in texts for word in words):
            found.add((table, column))
    return found


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


@transaction
def _plant() -> Statements[None]:
    body = f'["user", "{SECRET}", "{ID}'.encode()
    yield "INSERT INTO inbox (key, state, received, identity, body) VALUES ('k', 'done', 1, ?, ?)", (ANN, body)
    for identity in (None, ANN):
        content = json_text({"chat": ID, "body": body.decode()})
        yield from record_loss("outbox", f"{NAME}:{ID}", "x", NOON, content=content, identity=identity)
    process = (
        "INSERT INTO processes (id, session_no, identity, place, origin, backend, command, folder, terminal, home,"
        " host, worker, lease_until, started, problem, stopped_by, exit_notice, watch)"
        " VALUES ('p', 999, ?, ?, ?, 'local', ?, ?, 0, 'h', 'h', 'w', 0, 0, ?, ?, 'off', ?)"
    )
    yield process, (ANN, ID, body, *[SECRET] * 5)
    yield "INSERT INTO feedback (turn_no, identity, rating, at) VALUES (1, ?, 1, 1)", (ANN,)
    note = "INSERT INTO memory_notes (profile, identity, place, text, created) VALUES ('main', ?, ?, ?, 1)"
    for identity, place in ((ANN, None), (ANN, f"agent:main:telegram:group:-100:user:{ID}")):
        yield note, (identity, place, SECRET)
    yield note, (None, f"agent:main:telegram:dm:{ID}", SECRET)
    replaced = (
        "UPDATE memory_notes SET replaced_by = (SELECT min(no) FROM memory_notes WHERE identity = ?) WHERE no = ?"
    )
    for identity in (ANN, "telegram:8"):
        rows = yield f"{note} RETURNING no", (identity, "agent:main:telegram:group:-100", SECRET)
        yield replaced, (ANN, rows[0][0])
    for (table, column), (condition, person) in PLANTED.items():
        yield f"UPDATE {table} SET {column} = ? WHERE {condition}", (f"{SECRET} of {ID}", person)  # noqa: S608 - ours


async def test_planted_words_are_left_in_no_column(store: Store) -> None:
    await live(store)
    await store.transact(_plant())
    planted = await _columns_with(store, WORDS)
    assert PLANTED.keys() <= planted
    known = {f"{table}.{column}" for table, column in planted} | {*WITHOUT_CONTENT, *NOT_PLANTED}
    schema = {f"{table}.{column}" for table, column in await store.read(_columns())}
    assert schema <= known, "say whether the new columns can hold content, and plant words in them"
    await forget(store)
    assert await _columns_with(store, WORDS) == set()
    assert ("entries", "body") in await _columns_with(store, (OTHERS,))
