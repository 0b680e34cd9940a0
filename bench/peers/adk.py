"""Google's ADK: its `DatabaseSessionService` on SQLite."""

from importlib import import_module
from pathlib import Path
from typing import Any

from bench.peers.peer import Peer, serve, words

_WHO = {"app_name": "bench", "user_id": "ann", "session_id": "one"}


class _Adk:
    def __init__(self, service: Any, session: Any) -> None:  # noqa: ANN401 - its types are not installed here
        self._service, self._session = service, session
        self._event: Any = import_module("google.adk.events").Event
        self._types: Any = import_module("google.genai.types")

    async def append_turn(self, number: int) -> None:
        """With the session as loaded, which its runner keeps during a run."""
        part, query = self._types.Part, {"query": "ordinary words", "limit": 5}
        said = part(text=words(number))
        call = part(function_call=self._types.FunctionCall(name="search", args=query))
        result = part(function_response=self._types.FunctionResponse(name="search", response={"result": words(number)}))
        for author, parts in (("user", [said]), ("agent", [said, call]), ("agent", [result]), ("agent", [said])):
            content = self._types.Content(role="user" if author == "user" else "model", parts=parts)
            await self._service.append_event(self._session, self._event(author=author, content=content))

    async def load(self) -> int:
        return len((await self._service.get_session(**_WHO)).events)


async def _open(folder: Path) -> Peer:
    sessions: Any = import_module("google.adk.sessions.database_session_service")
    service = sessions.DatabaseSessionService(f"sqlite+aiosqlite:///{folder}/sessions.db")
    return _Adk(service, await service.create_session(**_WHO))


if __name__ == "__main__":
    serve(_open)
