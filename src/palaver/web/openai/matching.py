"""Matching: which conversation a client goes on with that sends all of it again each time."""

import hashlib
from collections.abc import Sequence
from itertools import groupby

from palaver.domain.transcript import Entry, Role
from palaver.domain.value import value
from palaver.web.openai.asked import Utterance

__all__ = ["Standing", "folded", "name_of", "opening", "standing"]


@value(kw_only=False)
class Standing:
    """How a conversation stands to what a client says was said: it ends there, or has gone on since."""

    seq: int
    """The last entry of what was said."""
    is_end: bool


def name_of(system: str, first: str) -> str:
    """What all conversations that begin so are called."""
    return "auto-" + hashlib.sha256(f"{len(system)}:{system}{first}".encode("utf-8", "replace")).hexdigest()[:24]


def opening(system: str, text: str) -> str:
    """The first message of a conversation: the instructions of a client are words of whoever sends them."""
    return f"{system}\n\n{text}" if system.strip() else text


def folded(system: str, before: Sequence[Utterance], text: str) -> str:
    """The first message of a conversation that began elsewhere: what was said before is told in it."""
    if not before:
        return opening(system, text)
    told = "\n\n".join(f"{'I' if each.by_user else 'You'} said: {each.text}" for each in before)
    return opening(system, f"So far:\n\n{told}\n\nNow: {text}")


def standing(system: str, before: Sequence[Utterance], entries: Sequence[Entry]) -> Standing | None:
    """None where something else was said than the client says."""
    spoken = _spoken(entries)
    for start in (place for place, each in enumerate(before) if each.by_user):
        length = len(before) - start
        if length > len(spoken) or any(
            each.text != text for each, (text, _) in zip(before[start + 1 :], spoken[1:], strict=False)
        ):
            continue
        # Where it began elsewhere, its first message stands for everything up to there.
        if spoken[0][0] == folded(system, before[:start], before[start].text):
            return Standing(spoken[length - 1][1], len(spoken) == length)
    return None


def _spoken(entries: Sequence[Entry]) -> list[tuple[str, int]]:
    """What was said in turn, and where each ends: also what a summary now stands for, but not what was taken back."""
    covers = [entry.covers for entry in entries if entry.covers and entry.hidden_by is None]
    shown = [
        entry
        for entry in entries
        if entry.role in {Role.USER, Role.ASSISTANT}
        and entry.text.strip()
        and (entry.hidden_by is None or any(first <= entry.seq <= last for first, last in covers))
    ]
    runs = [list(run) for _, run in groupby(shown, key=lambda entry: entry.role)]
    return [("\n\n".join(entry.text for entry in run), run[-1].seq) for run in runs]
