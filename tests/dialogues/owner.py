"""What happens beside a dialogue: the owner at the command line, and output that nobody asked for."""

import re
from dataclasses import dataclass, field, replace

from palaver.engine import texts
from palaver.model.access import AccessRole
from palaver.model.errors import LockedOut
from palaver.model.session import Principal
from palaver.model.source import Source
from palaver.model.turn import outbound_to
from palaver.protocols.clock import Clock
from palaver.store.archive.collector import collect_some
from palaver.store.archive.exporter import ExportFormat, write_archive
from palaver.store.archive.importer import ImportOutcome, import_sessions
from palaver.store.conversations import deletion
from palaver.store.people import pairing
from tests.engine.gateway import Bench
from tests.store.world import cause

__all__ = ["Owner"]

OPERATOR = Principal.operator()
_APPROVE = re.compile(r"palaver pair approve (?P<code>\S+)(?: (?P<not>is wrong|is not looked at))?")
_SESSIONS = re.compile(r"palaver sessions (?P<what>export|delete|import) (?P<title>\w+)")


@dataclass
class Owner:
    clock: Clock
    _files: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])
    """What was exported, under the title of the session."""
    _told: int = 0

    async def does(self, here: Bench, what: str) -> bool:
        """Whether it is something that the owner does."""
        if approve := _APPROVE.fullmatch(what):
            assert await self._let_in(here, approve["code"]) == (approve["not"] or "")
        elif sessions := _SESSIONS.fullmatch(what):
            await self._keep(here, sessions["what"], sessions["title"])
        else:
            return False
        return True

    async def tell(self, here: Bench, source: Source, text: str) -> None:
        """Output to a chat that its conversation knows of."""
        key = await here.engine.key_of(source)
        self._told += 1
        news = replace(outbound_to(source, text), mirror=key.text)
        await here.store.transact(here.store.outbox.enqueue(news, cause(f"news:{self._told}"), self.clock.now()))

    async def _let_in(self, here: Bench, code: str) -> str:
        """What was wrong with the code."""
        answer = pairing.approve(
            code,
            AccessRole.MEMBER,
            self.clock.now(),
            by="operator",
            notice=texts.PAIRED,
        )
        try:
            return "" if await here.store.transact(answer) else "is wrong"
        except LockedOut:
            return "is not looked at"

    async def _keep(self, here: Bench, what: str, title: str) -> None:
        if what == "import":
            lines = b"".join(self._files[title]).splitlines(keepends=True)
            outcomes = [each.outcome async for each in import_sessions(here.store.database, lines)]
            assert outcomes == [ImportOutcome.IMPORTED]
            return
        session = await here.store.read(here.store.sessions.find(title, OPERATOR))
        if what == "delete":
            await here.store.transact(deletion.delete(session.id, OPERATOR, self.clock.now()))
        else:
            records = collect_some(here.store.database, [session.id], OPERATOR)
            self._files[title] = [piece async for piece in write_archive(records, ExportFormat.JSONL, hidden=True)]
