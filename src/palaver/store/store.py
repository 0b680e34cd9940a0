"""Store: one database, its search index, and the transactions on them by subject."""

from palaver.db.sqlite import SqliteDatabase
from palaver.db.transaction import Database, DatabaseClient
from palaver.store import accounts, processes
from palaver.store.archive import exporter
from palaver.store.conversations import (
    attach,
    attachments,
    branches,
    chat_migration,
    expiry,
    feedback,
    handoff,
    history,
    sessions,
    titles,
    transcript,
)
from palaver.store.jobs import firings, jobs
from palaver.store.people import aliases, api_tokens, grants, links, memory, pairing, people, usage
from palaver.store.privacy.erasure import Erasures
from palaver.store.queue import commands, inbox, mentions, outbox, relayed, revisions, turn_control, turns
from palaver.store.scrub import scrub
from palaver.store.search.search import Search
from palaver.store.search.sqlite_index import SqliteIndex
from palaver.store.status import (
    chat_list,
    journal_feed,
    message_status,
    overview,
    problems,
    session_list,
    trace,
    webchat_log,
)


class Store(DatabaseClient):
    """Use it as `async with await open_store(url) as store`."""

    accounts = accounts
    aliases = aliases
    api_tokens = api_tokens
    attach = attach
    attachments = attachments
    branches = branches
    chat_list = chat_list
    chat_migration = chat_migration
    commands = commands
    expiry = expiry
    exporter = exporter
    feedback = feedback
    firings = firings
    grants = grants
    handoff = handoff
    history = history
    inbox = inbox
    jobs = jobs
    journal_feed = journal_feed
    links = links
    memory = memory
    mentions = mentions
    message_status = message_status
    outbox = outbox
    overview = overview
    pairing = pairing
    people = people
    problems = problems
    processes = processes
    relayed = relayed
    revisions = revisions
    session_list = session_list
    sessions = sessions
    titles = titles
    trace = trace
    transcript = transcript
    turn_control = turn_control
    turns = turns
    usage = usage
    webchat_log = webchat_log

    def __init__(self, database: Database, search: Search) -> None:
        super().__init__(database)
        self.search = search
        self.erasures = Erasures(database, search)
        self._closed = False

    async def scrub(self) -> None:
        await scrub(self.database)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self.search.close()
        await super().close()


async def open_search(database: Database) -> Search:
    """Open the search index: a file beside SQLite's, or tables in PostgreSQL."""
    if isinstance(database, SqliteDatabase):
        return Search(database, SqliteIndex(database))
    from palaver.store.search.postgres_index import PostgresIndex  # noqa: PLC0415 - an extra

    index = PostgresIndex(database)
    await index.open()
    return Search(database, index)
