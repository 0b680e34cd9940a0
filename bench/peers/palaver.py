"""Palaver: a message comes in and is routed, its turn is claimed and settled, and the reply is queued."""

from pathlib import Path

from bench.peers.peer import ARGUMENTS, Peer, call_id, serve, words
from bench.populate import LEASE, NOON, RULES, key, source
from palaver.model.prompt import Naming
from palaver.model.transcript import Entry, Role, ToolCall
from palaver.model.turn import Inbound, Outbound
from palaver.model.view import view
from palaver.platforms.plugins import PLATFORMS
from palaver.store.conversations import transcript
from palaver.store.opening import open_store
from palaver.store.queue import inbox, turns
from palaver.store.results import Begun
from palaver.store.store import Store

_NAMING = Naming(platform=PLATFORMS["telegram"])


class _Palaver:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._session = 0

    async def append_turn(self, number: int) -> None:
        await self._store.transact(inbox.accept(Inbound(source=source(0), text=words(number), at=NOON), key(0), NOON))
        begun = await self._store.transact(turns.begin(key(0), "bench", NOON, LEASE, RULES))
        if not isinstance(begun, Begun):
            raise TypeError(begun)
        self._session = begun.turn.session_number
        call = ToolCall(id=call_id(number), name="search", arguments=ARGUMENTS)
        entries = [
            Entry(seq=0, role=Role.ASSISTANT, at=NOON, text=words(number), calls=(call,)),
            Entry(seq=0, role=Role.TOOL, at=NOON, text=words(number), answers=call.id),
            Entry(seq=0, role=Role.ASSISTANT, at=NOON, text=words(number)),
        ]
        reply = Outbound(platform="telegram", chat_id="0", text=words(number))
        await self._store.transact(turns.settle(begun.turn, entries, [reply], NOON))

    async def load(self) -> int:
        shown = await self._store.read(transcript.load_shown(self._session))
        view(shown, _NAMING)
        return len(shown)


async def _open(folder: Path) -> Peer:
    return _Palaver(await open_store(f"sqlite:///{folder}/palaver.db"))


if __name__ == "__main__":
    serve(_open)
