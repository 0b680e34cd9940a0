"""Revisions: what to do when an author edits or deletes a message after sending it."""

from enum import StrEnum

from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.source import identity_of
from palaver.model.turn import Inbound, InboxState, Received
from palaver.model.value import value


class RevisionPolicy(StrEnum):
    IGNORE = "ignore"
    """Leave the conversation unchanged."""
    NOTE = "note"
    """Tell the agent with its next turn, and no longer show it a deleted message."""
    RERUN = "rerun"
    """Rewind the conversation to the message and answer an edited one again."""


class RevisionAction(StrEnum):
    """What to do with one revision."""

    REFUSE = "refuse"
    LEAVE = "leave"
    REPLACE = "replace"
    """The message is still queued: give it the new text."""
    WITHDRAW = "withdraw"
    """The message is still queued: do not answer it."""
    NOTE = "note"
    RERUN = "rerun"


@value(kw_only=False)
class RevisionDecision:
    course: RevisionAction
    reason: str
    """Shown when somebody traces the message."""


_REPLACE = RevisionDecision(RevisionAction.REPLACE, "the queued message has the new text")
_WITHDRAW = RevisionDecision(RevisionAction.WITHDRAW, "the queued message was withdrawn")


def decide_revision(
    revised: Inbound, original: Received | None, latest: Inbound | None, policy: RevisionPolicy
) -> RevisionDecision:
    """Decide what to do, given the original message and the latest earlier revision, if they have arrived.

    A deletion without an author counts as the author's own, because only the platform can have reported it.
    """
    is_deletion = revised.revision is not None and revised.revision.deleted
    author = identity_of(revised.source)
    if revised.source.message_id is None or (author is None and not is_deletion):
        return RevisionDecision(RevisionAction.REFUSE, "it does not say whose message it changes")
    if latest is not None and revised.at < latest.at:
        return RevisionDecision(RevisionAction.REFUSE, "a newer revision arrived first")
    if original is None:
        return RevisionDecision(RevisionAction.LEAVE, "the original message has not arrived")
    if author is not None and author != identity_of(original.inbound.source):
        return RevisionDecision(RevisionAction.REFUSE, "the original message is from someone else")
    has_new_files = original.state is InboxState.WAITING and not has_same_files(original.inbound, revised)
    if not is_deletion and revised.text == (latest or original.inbound).text and not has_new_files:
        return RevisionDecision(RevisionAction.LEAVE, "the text is unchanged")
    return _by_state(original, policy, is_deletion=is_deletion)


def _by_state(original: Received, policy: RevisionPolicy, *, is_deletion: bool) -> RevisionDecision:
    if original.state is InboxState.REFUSED:
        return RevisionDecision(RevisionAction.REFUSE, "the original message was refused")
    if original.state is InboxState.WAITING:
        return _WITHDRAW if is_deletion else _REPLACE
    if original.turn is None:
        return RevisionDecision(RevisionAction.LEAVE, "the message already ran as a command or was withdrawn")
    if policy is RevisionPolicy.IGNORE:
        return RevisionDecision(RevisionAction.LEAVE, "this chat ignores edits and deletions")
    # An overheard message was never answered, so there is nothing to answer again.
    if policy is RevisionPolicy.NOTE or original.inbound.observed:
        return RevisionDecision(RevisionAction.NOTE, "the agent sees a note with its next turn")
    return RevisionDecision(RevisionAction.RERUN, "the conversation rewinds to the message")


def has_same_files(before: Inbound, after: Inbound) -> bool:
    """Return whether an edit leaves the files of a message as they are; most platforms do not send them along."""
    if not after.files or len(before.files) != len(after.files):
        return not after.files
    return all(map(_is_same_file, before.files, after.files))


def _is_same_file(before: Attachment, after: Attachment) -> bool:
    """A platform can give another handle to the same file, but not another size."""
    has_same_handle = after.handle is not None and after.handle == before.handle
    return has_same_handle or (after.size is not None and after.size == before.size)


def revision_note(before: str, after: str | None, *, has_new_recording: bool = False) -> str:
    """Return the note for the agent, with people's words in quotes they cannot close."""
    if after is None:
        return "the user deleted an earlier message; it is no longer shown to you"
    words = after.replace("\\", "\\\\").replace('"', '\\"')
    recording = ", with another recording, which is not transcribed" if has_new_recording else ""
    return f'the user edited an earlier message: instead of {Label(before).quoted()} it now says "{words}"{recording}'
