"""Ranking: the best of a bounded set of found documents, by BM25 over what was found."""

from collections.abc import Sequence
from math import log

from palaver.domain.query import Clause, Query
from palaver.stores.search.documents import Candidate

__all__ = ["best_of"]

_SATURATION = 1.2
_LENGTH = 0.75
_TOGETHER = 1.5


def best_of(query: Query, found: Sequence[Candidate]) -> list[Candidate]:
    """Best first; of equals the newest."""
    if not found:
        return []
    average = sum(len(each.body) for each in found) / len(found)
    counts = [[_count(clause, each.body) for each in found] for clause in query.clauses]
    weights = [log(1 + average * len(found) / (1 + sum(each))) for each in counts]
    together = " ".join(word for clause in query.clauses for word in clause.words)

    def score(index: int) -> float:
        body = found[index].body
        norm = _SATURATION * (1 - _LENGTH + _LENGTH * len(body) / average)
        total = sum(
            weight * count[index] / (count[index] + norm) for weight, count in zip(weights, counts, strict=True)
        )
        return total * (_TOGETHER if len(query.clauses) > 1 and together in body else 1)

    order = sorted(range(len(found)), key=lambda index: (-score(index), index))
    return [found[index] for index in order]


def _count(clause: Clause, body: str) -> int:
    needle = clause.needle
    whole = clause.whole or (clause.words[0] if len(clause.words) == 1 else "")
    return body.count(needle) + (body.count(f"|{whole}{'' if clause.prefix else '|'}") if whole else 0)
