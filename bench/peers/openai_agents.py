"""The OpenAI Agents SDK: its `SQLiteSession`."""

from importlib import import_module
from pathlib import Path
from typing import Any

from bench.peers.peer import ARGUMENTS, Peer, call_id, serve, words


class _OpenAiAgents:
    def __init__(self, folder: Path) -> None:
        agents: Any = import_module("agents")
        self._session = agents.SQLiteSession("one", str(folder / "sessions.db"))

    async def append_turn(self, number: int) -> None:
        """The question when the run begins, the rest as it comes, as its runner does."""
        call = {"type": "function_call", "call_id": call_id(number), "name": "search", "arguments": ARGUMENTS}
        output = {"type": "function_call_output", "call_id": call_id(number), "output": words(number)}
        await self._session.add_items([{"role": "user", "content": words(number)}])
        await self._session.add_items([call, output])
        await self._session.add_items([{"role": "assistant", "content": words(number)}])

    async def load(self) -> int:
        return len(await self._session.get_items())


async def _open(folder: Path) -> Peer:
    return _OpenAiAgents(folder)


if __name__ == "__main__":
    serve(_open)
