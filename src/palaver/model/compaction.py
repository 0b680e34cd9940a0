"""Compaction: when to summarise a transcript, and which entries a summary replaces."""

from collections.abc import Iterable, Iterator, Sequence

from palaver.model.errors import NothingToCompact
from palaver.model.transcript import Entry, Role, is_addressed_to_agent
from palaver.model.value import value
from palaver.model.view import estimate_tokens, visible_entries


@value
class CompactionPlan:
    covered: tuple[Entry, ...]

    @property
    def covers(self) -> tuple[int, int]:
        first = self.covered[0]
        return first.covers[0] if first.covers else first.seq, self.covered[-1].position

    @property
    def tokens(self) -> int:
        return estimate_tokens(*self.covered)


def plan_compaction(entries: Iterable[Entry], *, keep_exchanges: int = 2) -> CompactionPlan:
    """Cover everything visible before the last exchanges, without separating a tool call from its result."""
    visible = visible_entries(entries)
    cut = _move_before_open_calls(visible, _start_of_recent(visible, keep_exchanges))
    covered = tuple(visible[:cut])
    if all(entry.role in {Role.SUMMARY, Role.NOTE} for entry in covered):
        raise NothingToCompact("there is nothing to summarise before the most recent exchanges")
    return CompactionPlan(covered=covered)


def check_gain(plan: CompactionPlan, summary: Entry) -> None:
    """Raise NothingToCompact if the summary is empty or not shorter than what it replaces."""
    if not summary.text.strip():
        raise NothingToCompact("the summary would be empty")
    before, after = plan.tokens, estimate_tokens(summary)
    if after >= before:
        raise NothingToCompact(f"the summary would take {after} tokens, and what it replaces takes {before}")


def _start_of_recent(entries: Sequence[Entry], keep_exchanges: int) -> int:
    """Return where the last exchanges begin. An exchange begins when a person speaks to the agent."""
    addressed = [is_addressed_to_agent(entry) for entry in entries]
    starts = [index for index, is_new in enumerate(addressed) if is_new and not (index and addressed[index - 1])]
    if keep_exchanges <= 0:
        return len(entries)
    return starts[-keep_exchanges] if len(starts) >= keep_exchanges else 0


def _move_before_open_calls(entries: Sequence[Entry], cut: int) -> int:
    """Move the cut up until no call before it has its result after it, or no result yet."""
    for call_index, result_index in sorted(_call_spans(entries), reverse=True):
        if call_index < cut <= result_index:
            cut = call_index
    return cut


def _call_spans(entries: Sequence[Entry]) -> Iterator[tuple[int, int]]:
    """Yield the positions of each call and its result; an open call's result is after the end.

    An id that is used again belongs to the newer call.
    """
    made: dict[str, int] = {}
    unanswered: set[str] = set()
    for index, entry in enumerate(entries):
        made.update((call.id, index) for call in entry.calls)
        unanswered.update(call.id for call in entry.calls)
        if entry.role is Role.TOOL and entry.answers in made:
            unanswered.discard(entry.answers)
            yield made[entry.answers], index
    # Only the latest turn can still run: calls that an earlier one left unanswered stay so.
    latest = next((entry.turn for entry in reversed(entries) if entry.turn), None)
    yield from ((made[call], len(entries)) for call in unanswered if entries[made[call]].turn == latest)
