"""Compaction: when a transcript is summarised, and which entries a summary may stand for."""

from collections.abc import Iterable, Iterator, Sequence

from palaver.model.errors import NothingToCompact
from palaver.model.transcript import Entry, Role
from palaver.model.value import value
from palaver.model.view import visible_entries

__all__ = [
    "CompactionPlan",
    "CompactionTrigger",
    "check_gain",
    "estimate_tokens",
    "plan_compaction",
]

_BYTES_PER_TOKEN = 4


def estimate_tokens(*entries: Entry) -> int:
    """What entries weigh in a prompt: the provider's count where there is one."""
    tokens = 0
    for entry in entries:
        text = entry.text
        if entry.calls or entry.reasoning:
            text += entry.reasoning + "".join(call.name + call.arguments for call in entry.calls)
        # In bytes: scripts that take more of them take more tokens, too.
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        tokens += entry.tokens or 1 + size // _BYTES_PER_TOKEN
    return tokens


@value
class CompactionTrigger:
    context_share: float = 0.85
    message_limit: int = 400

    def is_due(self, entries: Sequence[Entry], context_window: int) -> bool:
        """Whether the model was shown too much of a conversation: too many tokens or too many entries."""
        if len(entries) >= self.message_limit:
            return True
        return estimate_tokens(*entries) >= self.context_share * context_window


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
    """Everything visible before the last exchanges, so cut that no tool call is parted from its result."""
    shown = visible_entries(entries)
    cut = _parting_no_call(shown, _start_of_recent(shown, keep_exchanges))
    covered = tuple(shown[:cut])
    if all(entry.role in {Role.SUMMARY, Role.NOTE} for entry in covered):
        raise NothingToCompact("there is nothing to summarise before the most recent exchanges")
    return CompactionPlan(covered=covered)


def check_gain(plan: CompactionPlan, summary: Entry) -> None:
    """Refuse a summary that says nothing, or weighs as much as what it replaces."""
    if not summary.text.strip():
        raise NothingToCompact("the summary would be empty")
    before, after = plan.tokens, estimate_tokens(summary)
    if after >= before:
        raise NothingToCompact(f"the summary would take {after} tokens in the place of {before}")


def _start_of_recent(shown: Sequence[Entry], keep_exchanges: int) -> int:
    """Where the last `keep_exchanges` exchanges begin; an exchange begins where a person speaks to the agent."""
    starts = [
        index for index, entry in enumerate(shown) if _addresses(entry) and not (index and _addresses(shown[index - 1]))
    ]
    if keep_exchanges <= 0:
        return len(shown)
    return starts[-keep_exchanges] if len(starts) >= keep_exchanges else 0


def _addresses(entry: Entry) -> bool:
    return entry.role is Role.USER and not entry.observed


def _parting_no_call(shown: Sequence[Entry], cut: int) -> int:
    """Move the cut up until no call before it has its result behind it, or still to come."""
    for call_index, result_index in sorted(_calls(shown), reverse=True):
        if call_index < cut <= result_index:
            cut = call_index
    return cut


def _calls(shown: Sequence[Entry]) -> Iterator[tuple[int, int]]:
    """Where each call and its result stand, an open call's behind all; an id used again belongs to the newer call."""
    made: dict[str, int] = {}
    unanswered: set[str] = set()
    for index, entry in enumerate(shown):
        made.update((call.id, index) for call in entry.calls)
        unanswered.update(call.id for call in entry.calls)
        if entry.role is Role.TOOL and entry.answers in made:
            unanswered.discard(entry.answers)
            yield made[entry.answers], index
    # Only the latest turn can still run: what an earlier one left unanswered stays so, and holds nothing up.
    latest = next((entry.turn for entry in reversed(shown) if entry.turn), None)
    yield from ((made[call], len(shown)) for call in unanswered if shown[made[call]].turn == latest)
