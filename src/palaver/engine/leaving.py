"""Leaving a conversation in which messages still wait: they are not answered elsewhere, and people are told."""

from collections.abc import Iterable
from datetime import datetime

from palaver.domain.turn import Received
from palaver.engine import words
from palaver.engine.ground import Ground
from palaver.ports.work import Steps, Work, work

__all__ = ["leaving"]


@work
def leaving(on: Ground, command: Received, does: Work[str], now: datetime) -> Steps[str]:
    """Do what a command says. Where it leads elsewhere, the answer says how many messages are left behind."""
    answer, left = yield from on.store.moves.leaving(command, does)
    unanswered = [each for each in left if not each.inbound.observed]
    if not unanswered:
        return answer
    here = command.inbound.source.address if command.number else None
    yield from _tell_others(on, (each for each in unanswered if each.inbound.source.address != here), now)
    return f"{answer} {words.unanswered(len(unanswered))}"


def _tell_others(on: Ground, left: Iterable[Received], now: datetime) -> Steps[None]:
    """Each place in which nobody reads the answer to the command, as the answer to the last that was said there."""
    places: dict[object, list[Received]] = {}
    for each in left:
        places.setdefault(each.inbound.source.address, []).append(each)
    for said in places.values():
        source, name = said[-1].inbound.source, f"command:{said[-1].number}"
        for part, outbound in enumerate(on.replies.to(source, words.unanswered(len(said)))):
            yield from on.store.outbox.owe(outbound, f"{name}:{part}", now)
