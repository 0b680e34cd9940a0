"""The pure decisions every message pays for: key, view, context section."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from bench.measure import Figure, compare
from palaver.model.key import Scope, derive_key
from palaver.model.label import Label
from palaver.model.prompt import HomeChannel, Naming, Situation, context_section
from palaver.model.source import GROUP, Labels, Source
from palaver.model.transcript import Entry, Role, ToolCall
from palaver.model.view import view
from palaver.platforms.plugins import PLATFORMS

__all__ = ["key", "section", "view_200"]

SOURCE = Source(platform="telegram", chat_kind=GROUP, chat_id="-1001234567890", thread_id="42", user_id="7")


def key() -> Iterator[Figure]:
    scope = Scope()
    yield compare(
        "domain.key",
        lambda: derive_key(SOURCE, scope),
        "an f-string",
        lambda: f"agent:{SOURCE.profile}:{SOURCE.platform}:{SOURCE.chat_kind}:{SOURCE.chat_id}:{SOURCE.thread_id}",
        limit=3e-6,
        calls=2000,
    )


def _conversation(entries: int) -> list[Entry]:
    """Question, tool call, result, answer, over and over; about 300 characters each."""
    start = datetime(2026, 3, 1, 12, tzinfo=UTC)
    words = "a sentence of ordinary length that somebody might have said. " * 5
    roles = (Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT)
    return [
        Entry(
            seq=seq,
            role=roles[seq % 4],
            at=start + timedelta(minutes=seq),
            text=words,
            calls=(ToolCall(id=f"c{seq}", name="search", arguments='{"query": "words", "limit": 5}'),)
            if seq % 4 == 1
            else (),
            answers=f"c{seq - 1}" if seq % 4 == 2 else None,
        )
        for seq in range(entries)
    ]


def view_200() -> Iterator[Figure]:
    log, naming = _conversation(200), Naming(platform=PLATFORMS["telegram"])
    yield compare("domain.view_200", lambda: view(log, naming), "a list copy", lambda: list(log), limit=1e-3, calls=20)


def section() -> Iterator[Figure]:
    situation = Situation(
        source=SOURCE,
        platform=PLATFORMS["telegram"],
        labels=Labels(chat=Label("Dev"), user=Label("alice"), topic=Label("Releases and fixes")),
        shared=True,
        connected=tuple(PLATFORMS[name] for name in ("telegram", "discord", "slack")),
        homes=(HomeChannel(platform=PLATFORMS["telegram"], chat_id="123", name=Label("Family")),),
    )
    lines = context_section(situation).splitlines()
    yield compare(
        "domain.section",
        lambda: context_section(situation),
        "a join of its lines",
        lambda: "\n".join(lines),
        limit=50e-6,
        calls=200,
    )
