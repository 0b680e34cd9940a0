"""Revisions: what becomes of a message that its author changed or deleted after sending it."""

from enum import StrEnum

from palaver.model.label import Label
from palaver.model.lifecycle import InboxState
from palaver.model.session import identity_of
from palaver.model.turn import Inbound, Received
from palaver.model.value import value

__all__ = [
    "RevisionAction",
    "RevisionDecision",
    "RevisionPolicy",
    "decide_revision",
    "revision_note",
]


class RevisionPolicy(StrEnum):
    IGNORE = "ignore"
    """What was answered stays as it is."""
    NOTE = "note"
    """The agent is told at its next turn; what was deleted is not shown to it any more."""
    RERUN = "rerun"
    """The conversation goes back to the message, and a changed one is answered anew."""


class RevisionAction(StrEnum):
    """What is done with a revision."""

    REFUSE = "refuse"
    LEAVE = "leave"
    REPLACE = "replace"
    """The message still waits: it has the new text now."""
    WITHDRAW = "withdraw"
    """The message still waits: it is not answered."""
    NOTE = "note"
    RERUN = "rerun"


@value(kw_only=False)
class RevisionDecision:
    course: RevisionAction
    reason: str
    """For whoever asks later what became of it."""


_UNKNOWN = RevisionDecision(RevisionAction.LEAVE, "the message it changes has not come")
_NAMELESS = RevisionDecision(RevisionAction.REFUSE, "it does not say whose message it changes")
_FOREIGN = RevisionDecision(RevisionAction.REFUSE, "the message it changes is somebody else's")
_NOT_LET_IN = RevisionDecision(RevisionAction.REFUSE, "the message it changes was refused")
_STALE = RevisionDecision(RevisionAction.REFUSE, "a newer change of the message came before it")
_SAME = RevisionDecision(RevisionAction.LEAVE, "it changes no word")
_REPLACE = RevisionDecision(RevisionAction.REPLACE, "the message was not answered yet and has the new text now")
_WITHDRAW = RevisionDecision(RevisionAction.WITHDRAW, "the message was not answered yet and was withdrawn")
_OBEYED = RevisionDecision(RevisionAction.LEAVE, "the message was obeyed or withdrawn already, which is not done again")
_IGNORE = RevisionDecision(RevisionAction.LEAVE, "changes are ignored in this chat")
_NOTE = RevisionDecision(RevisionAction.NOTE, "the agent is told with its next turn")
_RERUN = RevisionDecision(RevisionAction.RERUN, "the conversation goes back to the message")


def decide_revision(
    revised: Inbound, original: Received | None, latest: Inbound | None, policy: RevisionPolicy
) -> RevisionDecision:
    """Given the message it changes and the last change before it that counted, if they have come.

    Whose deletion a platform does not say is taken for the author's: only the platform can have told it.
    """
    is_deletion = revised.revision is not None and revised.revision.deleted
    author = identity_of(revised.source)
    if revised.source.message_id is None or (author is None and not is_deletion):
        return _NAMELESS
    if latest is not None and revised.at < latest.at:
        return _STALE
    if original is None:
        return _UNKNOWN
    if author is not None and author != identity_of(original.inbound.source):
        return _FOREIGN
    if not is_deletion and revised.text == (latest or original.inbound).text:
        return _SAME
    return _by_state(original, policy, is_deletion=is_deletion)


def _by_state(original: Received, policy: RevisionPolicy, *, is_deletion: bool) -> RevisionDecision:
    if original.state is InboxState.REFUSED:
        return _NOT_LET_IN
    if original.state is InboxState.WAITING:
        return _WITHDRAW if is_deletion else _REPLACE
    if original.turn is None:
        return _OBEYED
    if policy is RevisionPolicy.IGNORE:
        return _IGNORE
    # What was only overheard was never answered, so there is nothing to answer anew.
    if policy is RevisionPolicy.NOTE or original.inbound.observed:
        return _NOTE
    return _RERUN


def revision_note(before: str, after: str | None) -> str:
    """What the agent is told: the words of people in quotes that they cannot end."""
    if after is None:
        return "the user has deleted something they had said earlier; it is not shown to you any more"
    words = after.replace("\\", "\\\\").replace('"', '\\"')
    return f'the user has changed what they had said earlier: instead of {Label(before).quoted()} it now says "{words}"'
