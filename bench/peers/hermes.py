"""hermes-agent: its `SessionDB`."""

from importlib import import_module
from pathlib import Path
from typing import Any

from bench.peers.peer import ARGUMENTS, Peer, call_id, serve, words


class _Hermes:
    def __init__(self, folder: Path) -> None:
        state: Any = import_module("hermes_state")
        self._db = state.SessionDB(folder / "state.db")
        self._db.create_session("one", "telegram")

    async def append_turn(self, number: int) -> None:
        call = {"id": call_id(number), "function": {"name": "search", "arguments": ARGUMENTS}}
        self._db.append_message("one", "user", words(number))
        self._db.append_message("one", "assistant", words(number), tool_calls=[call])
        self._db.append_message("one", "tool", words(number), tool_name="search", tool_call_id=call_id(number))
        self._db.append_message("one", "assistant", words(number))

    async def load(self) -> int:
        return len(self._db.get_messages_as_conversation("one"))


async def _open(folder: Path) -> Peer:
    return _Hermes(folder)


if __name__ == "__main__":
    serve(_open)
