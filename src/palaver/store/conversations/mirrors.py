"""Mirrors: what is sent to a chat from elsewhere is noted in the conversations there, so that their agent knows it."""

import re
from dataclasses import replace

from palaver.db.transaction import Statements, transaction
from palaver.model.key import GroupScope, Scope, SessionKey, derive_key
from palaver.model.source import DM, Source, canonical_source, encode_id, with_participant
from palaver.model.transcript import Entry
from palaver.store.conversations.attach import conversation_of
from palaver.store.conversations.sessions import open_by_key
from palaver.store.conversations.transcript import append_outside_turn
from palaver.store.people import aliases

_EVERYBODY = Scope(group=GroupScope.SHARED)


@transaction
def find_chat(place: Source) -> Statements[SessionKey | None]:
    """Return the key of a chat, under the canonical ids of people, if a conversation is open there."""
    known = yield from aliases.load_for(place.platform)
    for kind in dict.fromkeys((place.chat_kind, DM)):  # only direct chats have other ids
        there = with_participant(replace(place, chat_kind=kind), None)
        key = derive_key(canonical_source(there, known), _EVERYBODY)
        for conversation in (yield from conversations_in(key)):
            if (yield from open_by_key(conversation)):
                return key
    return None


@transaction
def note_delivered(chat: SessionKey, entry: Entry) -> Statements[None]:
    """Append what arrived in a chat to the conversations that are open there."""
    # In one order, so that two that are noted in the same conversations do not wait for each other.
    for conversation in sorted((yield from conversations_in(chat)), key=lambda each: each.text):
        yield from append_outside_turn(conversation, entry)


@transaction
def conversations_in(chat: SessionKey) -> Statements[list[SessionKey]]:
    """Return the conversations of a chat and of its participants, or those to which these are attached.

    The kind of the chat does not matter: of a chat that was named by its id it is not known.
    """
    before = ":".join(chat.text.split(":")[:3])
    pattern = f"{_literally(before)}:%:{_literally(encode_id(chat.chat))}%"
    rows = yield (
        "SELECT key, key FROM sessions WHERE ended IS NULL AND key LIKE ? ESCAPE '!'"
        " UNION ALL SELECT place, key FROM attached_chats WHERE place LIKE ? ESCAPE '!'",
        (pattern, pattern),
    )
    leads_to = {SessionKey.parse(place): SessionKey.parse(key) for place, key in rows}
    wanted = chat._replace(kind="", user="")
    members = [key for place, key in leads_to.items() if place._replace(kind="", user="") == wanted]
    return list(dict.fromkeys([(yield from conversation_of(chat)), *members]))


def _literally(text: str) -> str:
    """Escape a text for LIKE."""
    return re.sub("[!%_]", r"!\g<0>", text)
