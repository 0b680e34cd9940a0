"""Versions of a conversation: what was answered again, or said in other words, and how to page through it.

A version copies its parent up to an entry and goes on differently. Copies keep their seqs.
"""

from collections.abc import Iterable, Mapping, Sequence

from palaver.model.value import value


@value
class Version:
    """One session of a conversation that has several."""

    number: int
    id: str
    parent: str | None = None
    """None for the first version."""
    parent_seq: int = 0
    """The last entry that it has in common with its parent."""
    last_active: int = 0


@value
class Choice:
    """A place in a conversation where versions part."""

    seq: int
    """The last entry that they have in common."""
    position: int
    """Which one is shown, from 1 on."""
    sessions: tuple[str, ...]
    """The session to open for each of them."""
    message: int = 0
    """The first message after that entry, in the version that is shown."""
    is_edit: bool = False
    """The message was said in other words, not only answered again."""

    @property
    def previous(self) -> str | None:
        return self.sessions[self.position - 2] if self.position > 1 else None

    @property
    def next(self) -> str | None:
        return self.sessions[self.position] if self.position < len(self.sessions) else None


def choices(versions: Iterable[Version], shown: str) -> dict[int, Choice]:
    """Return the choices on the way to the version that is shown, by the seq they part after."""
    known = {each.id: each for each in versions}
    way = _way(known, shown)
    found: dict[int, Choice] = {}
    for seq in {each.parent_seq for each in known.values() if each.parent in known}:
        # The last version on the way that is not a copy beyond this entry.
        holder = next((each for each in reversed(way) if each.parent not in known or each.parent_seq <= seq), None)
        if holder is None:
            continue
        group = _group(known, holder, seq)
        at = next((place for place, each in enumerate(group) if each.id == holder.id), None)
        if len(group) > 1 and at is not None:
            opened = tuple(shown if each.id == holder.id else _newest(known, each, seq) for each in group)
            found[seq] = Choice(seq=seq, position=at + 1, sessions=opened)
    return found


def _way(known: Mapping[str, Version], shown: str) -> list[Version]:
    """Return the versions from the first one to the one that is shown."""
    way: list[Version] = []
    at = known.get(shown)
    while at is not None and at not in way:
        way.insert(0, at)
        at = known.get(at.parent or "")
    return way


def _group(known: Mapping[str, Version], holder: Version, seq: int) -> Sequence[Version]:
    """Return the versions that part after this entry, the first one included."""
    top = holder
    while top.parent_seq == seq and (parent := known.get(top.parent or "")):
        top = parent
    group = {top.id: top}
    for each in sorted(known.values(), key=lambda version: version.number):
        if each.parent in group and each.parent_seq == seq:
            group[each.id] = each
    return list(group.values())


def _newest(known: Mapping[str, Version], version: Version, seq: int) -> str:
    """Return the version last used of those that share what this one says after the entry."""
    line = {version.id: version}
    for each in sorted(known.values(), key=lambda version: version.number):
        if each.parent in line and each.parent_seq > seq:
            line[each.id] = each
    return max(line.values(), key=lambda each: (each.last_active, each.number)).id
