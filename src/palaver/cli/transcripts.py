"""Print sessions and their entries as text or JSON."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo

from palaver.cli.output import pick, print_facts, print_heading, print_list, print_text
from palaver.commands.formatting import ago
from palaver.model.label import Label
from palaver.model.session import Session
from palaver.model.source import describe_source
from palaver.model.text import counted, one_line
from palaver.model.transcript import Entry, Role, ToolCall
from palaver.store.archive.render import entry_flags, file_lines, moment_text, speaker, without_control_characters
from palaver.store.results import Preview

STYLES = {
    Role.USER: "bold cyan",
    Role.ASSISTANT: "bold green",
    Role.TOOL: "bold yellow",
    Role.NOTE: "bold blue",
    Role.SUMMARY: "bold magenta",
}
PREVIEW_CHARS = 200


def name_of(session: Session) -> str:
    return Label(session.title).plain() if session.title else session.id


# For machines


def session_fields(session: Session) -> dict[str, object]:
    return {
        **pick(session, "id title"),
        "key": session.key.text,
        "profile": session.key.profile,
        "platform": session.origin.platform,
        **pick(session, "owner parent state started ended end_reason last_human last_active"),
        **pick(session.counters, "entries turns input_tokens output_tokens cached_tokens cost_micros unpriced_tokens"),
        "model": session.override and session.override.model,
    }


def preview_fields(preview: Preview) -> dict[str, object]:
    return session_fields(preview.session) | {"last_said": preview.last_said}


def entry_fields(entry: Entry) -> dict[str, object]:
    """Return the fields of an entry, without empty ones."""
    sender = entry.sender
    rare: dict[str, object] = {
        "sender": sender and {"id": sender.id, "name": sender.name and sender.name.stored()},
        "calls": [call._asdict() for call in entry.calls],
        "files": [{"name": file.name.plain(), **pick(file, "media_type size id")} for file in entry.files],
        "blob": base64.b64encode(entry.blob).decode(),
        **pick(entry, "turn message_id answers reasoning tokens observed covers hidden_by"),
    }
    # An unknown cost is null, never zero.
    cost = {"cost_micros": entry.cost_micros} if entry.tokens or entry.cost_micros is not None else {}
    return pick(entry, "seq role at text") | {name: value for name, value in rare.items() if value} | cost


# For people


def print_previews(previews: Iterable[Preview], present: datetime) -> None:
    columns = {"session": "", "title": "bold", "platform": "", "last active": "", "entries": "", "last said": "dim"}
    print_list(columns, (_preview_row(preview, present) for preview in previews))


def _preview_row(preview: Preview, present: datetime) -> Sequence[str]:
    session = preview.session
    return (
        session.id,
        one_line(session.title or "", 40),
        one_line(session.origin.platform, 20),
        ago(session.last_active, present),
        str(session.counters.entries),
        one_line(preview.last_said, PREVIEW_CHARS),
    )


def print_session(session: Session, present: datetime) -> None:
    print_heading(name_of(session))
    print_facts(_facts(session, present))


def _facts(session: Session, present: datetime) -> Iterator[tuple[str, str]]:
    counters = session.counters
    yield "id", session.id
    yield "where", f"{session.origin.platform}, {describe_source(session.origin)}"
    yield "conversation", session.key.text
    yield "owner", session.owner
    yield "started", f"{moment_text(session.started, present.tzinfo)} ({ago(session.started, present)})"
    yield "last active", f"{moment_text(session.last_active, present.tzinfo)} ({ago(session.last_active, present)})"
    if session.ended is not None:
        yield "ended", f"{moment_text(session.ended, present.tzinfo)} ({session.end_reason})"
    if session.parent is not None:
        yield "branched from", session.parent
    if session.override is not None:
        yield "model", one_line(session.override.model, 80)
    yield "entries", f"{counters.entries} in {counted(counters.turns, 'turn')}"
    yield "tokens", f"{counters.input_tokens} in, {counters.output_tokens} out"


def print_entries(entries: Iterable[Entry], zone: tzinfo | None = UTC) -> None:
    for entry in entries:
        print_text(("", ""))
        _print_entry(entry, zone)


def _print_entry(entry: Entry, zone: tzinfo | None) -> None:
    style = "dim strike" if entry.hidden_by is not None else STYLES[entry.role]
    body = "dim" if entry.hidden_by is not None or entry.observed else ""
    special = "".join(f" · {mark}" for mark in entry_flags(entry))
    print_text((speaker(entry), style), (f" · {moment_text(entry.at, zone)} · {entry.seq}{special}", "dim"))
    if entry.text:
        print_text((without_control_characters(entry.text), body))
    for name in file_lines(entry):
        print_text((f"file {without_control_characters(name)}", "dim"))
    for call in entry.calls:
        print_text((call_text(call), "dim"))


def call_text(call: ToolCall) -> str:
    return f"calls {one_line(call.name, 80)} with {one_line(call.arguments, 400)}"
