"""Welcome: what a newly opened conversation says to the agent and to the chat."""

from palaver.model.addressing import ConversationRules
from palaver.model.key import JOB
from palaver.model.session import EndReason
from palaver.model.split import ReplyRoutes
from palaver.model.turn import Outbound, Received
from palaver.store.results import Opened, Opening

FIRST_CONTACT_NOTE = "this person is talking to you for the first time"
_REASONS = {
    EndReason.IDLE: "nobody wrote for a while",
    EndReason.DAILY: "a new day began",
    EndReason.EXPIRED: "nobody wrote for a very long time",
    EndReason.SUSPENDED: "the last turn could not be finished",
}


def reset_note(reason: EndReason) -> str:
    return f"this is a fresh conversation because {_REASONS[reason]}; you do not see the earlier one"


def reset_notice(reason: EndReason) -> str:
    return (
        f"This is a fresh conversation because {_REASONS[reason]}. "
        "/back returns to the previous one; /resume lists earlier ones."
    )


def welcome(
    opened: Opened, last: Received, rules: ConversationRules, routes: ReplyRoutes
) -> tuple[list[str], list[Outbound]]:
    """Return the notes to the agent and the notices to the chat. `last` is the message that is answered last."""
    source, notes, notices = last.inbound.origin, list[str](), list[str]()
    if opened.opening is Opening.RESET and opened.reason is not None:
        notes.append(reset_note(opened.reason))
        # Nobody misses an empty conversation, and a suspended one was announced when its turn failed.
        is_news = opened.before_had_words and opened.reason is not EndReason.SUSPENDED
        if is_news and rules.reset_notices.find(source):
            notices.append(reset_notice(opened.reason))
    if last.key.kind == JOB:  # Nobody talks in the conversation of a job.
        return notes, []
    is_spoken_to = last.inbound.job is None and not last.inbound.observed
    if opened.is_first_contact and is_spoken_to and routes.reaches_people(source):
        notes.append(FIRST_CONTACT_NOTE)
    if not routes.reaches_people(source):
        notices = []
    readable = [rules.for_reader(text, last.role) for text in notices]
    return notes, [part for text in readable for part in routes.notices(source, text)]
