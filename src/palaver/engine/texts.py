"""Every sentence the gateway itself says, to people and to the agent."""

from zoneinfo import ZoneInfo

from palaver.model.attachment import Attachment, format_size
from palaver.model.busy import BusyMode
from palaver.model.errors import NotFound, PalaverError
from palaver.model.lifecycle import EndReason
from palaver.model.quotas import QuotaKind, QuotaReached
from palaver.model.text import quoted
from palaver.model.turn import Choice

__all__ = [
    "ASKED_FIRST",
    "CAPPED_NOTE",
    "CUT",
    "FAILED_NOTE",
    "FIRST_CONTACT_NOTE",
    "GIVEN_UP",
    "GOES_ON_IN_FILE",
    "LEFT_NOTE",
    "MAY_BE_DUPLICATE",
    "NO_HOME",
    "NO_HOME_NOTE",
    "OVERFLOW",
    "PAIRED",
    "PARTED",
    "RECALLED",
    "RETURNED",
    "SORRY",
    "STOPPED_NOTE",
    "TOO_LONG",
    "TOO_LONG_NOTE",
    "approval_choices",
    "approval_question",
    "attach_question",
    "attached",
    "busy_notice",
    "cap_error",
    "cap_notice",
    "compacted",
    "cut_off_note",
    "file_left",
    "gone_notice",
    "handed_off",
    "handing_off",
    "handoff_note",
    "handoff_opening",
    "measure_of",
    "not_compacted",
    "not_handed_off",
    "pairing_code",
    "refusal",
    "reset_note",
    "reset_notice",
    "unanswered",
    "unclear_notice",
    "went_back",
]

SORRY = "Something went wrong while answering. Please try again."
GOES_ON_IN_FILE = "… (This answer is too long for a chat. All of it is in the file that follows.)"
CUT = "(The answer is too long for this chat and ends here; the whole of it stands in the transcript.)"
TOO_LONG = "The answer took too long and was stopped. Please try again."
OVERFLOW = (
    "This conversation has become too long to be answered, and it could not be summarised. "
    "/new starts a fresh one; /back returns to this one."
)
GIVEN_UP = (
    "Your last message could not be answered: the gateway was restarted several times or too long ago. "
    "The conversation starts fresh; /back returns to it."
)
MAY_BE_DUPLICATE = "(may be a duplicate)"
ASKED_FIRST = "Your message waits until you have said /approve or /deny to what was asked; /stop lets it be."
STOPPED_NOTE = "your last answer was stopped by the user; what you had said so far stands above"
FAILED_NOTE = "your last answer failed; the user was asked to try again"
TOO_LONG_NOTE = "your last answer was stopped, it took too long"
CAPPED_NOTE = "the message above was not answered: there was no room left under a cap"
LEFT_NOTE = "the user left without answering what you asked; nothing was allowed"
NO_HOME = (
    "No home channel is set for this platform yet: what goes to it without further address has nowhere to go. "
    "Say /sethome in the chat that shall be it."
)
NO_HOME_NOTE = (
    "no home channel is set for this platform, so output without further address has nowhere to go; "
    "an admin can say /sethome in the chat that shall be it"
)
PAIRED = "You are let in now. What you have written is answered."
FIRST_CONTACT_NOTE = "this person talks to you for the first time"

_REASONS = {
    EndReason.IDLE: "nobody had written for a while",
    EndReason.DAILY: "a new day began",
    EndReason.EXPIRED: "nobody had written for a very long time",
    EndReason.SUSPENDED: "the last turn could not be finished",
}


def reset_note(reason: EndReason) -> str:
    return f"this conversation was started fresh because {_REASONS[reason]}; the earlier one is not shown to you"


def reset_notice(reason: EndReason) -> str:
    return (
        f"This is a fresh conversation, because {_REASONS[reason]}. "
        "/back returns to the one before, /resume lists earlier ones."
    )


def approval_question(question: str, name: str = "") -> str:
    """With its name where an answer needs that: outside the conversation it belongs to."""
    which = f" {name}" if name else ""
    return f"{question}\n/approve{which} allows it, /deny{which} does not."


def approval_choices(question: str) -> tuple[Choice, ...]:
    """An answer that names its question is an answer to no other, however late somebody takes it."""
    return Choice("Allow", f"/approve {question}"), Choice("Deny", f"/deny {question}")


def cut_off_note(attempt: int) -> str:
    return (
        f"the gateway was restarted while you were answering (attempt {attempt}); "
        "tool calls without a result may or may not have had an effect, so look before you repeat them"
    )


def busy_notice(mode: BusyMode, *, is_command: bool = False) -> str:
    if is_command and mode is not BusyMode.INTERRUPT:
        return "Still at work; your command waits its turn."
    match mode:
        case BusyMode.QUEUE:
            return "Still at work; your message waits its turn."
        case BusyMode.COLLECT:
            return "Still at work; what you write meanwhile is answered together."
        case BusyMode.INTERRUPT:
            return "Stopping to read your message."
        case BusyMode.STEER:
            return "Still at work; your message is passed on if there is another step, else it is answered next."


def compacted(entries: int) -> str:
    return f"Summarised {entries} earlier messages; they stay in the transcript, and /back takes the summary back."


def not_compacted(why: str) -> str:
    return f"Nothing was summarised: {why}."


def went_back(hidden: int) -> str:
    followed = " and what followed" if hidden > 1 else ""
    return f"You deleted a message, so it{followed} left this conversation. /back brings it back."


def unanswered(count: int) -> str:
    """Of a conversation that was left while messages waited in it."""
    if count == 1:
        return "One message was still waiting in the conversation before; it is not answered any more."
    return f"{count} messages were still waiting in the conversation before; they are not answered any more."


def file_left(file: Attachment) -> str:
    """Where a file is that cannot be sent to this chat."""
    name = f"The file {file.name.plain()} ({format_size(file.size)})"
    if file.id is None:
        return f"{name} could not be sent: {file.problem}."
    return f"{name} cannot be sent to this chat. Whoever runs this gateway gets it with: palaver file {file.id}"


def gone_notice(place: str) -> str:
    return f"Messages to {place} cannot be delivered any more: the chat is gone or the bot was removed from it."


def unclear_notice(message: str) -> str:
    return (
        f"Nobody knows whether {message}, a message of mine, has arrived. On my machine, `palaver trace {message}`"
        " shows where it was to go and settles it; `palaver doctor` says whether there are more."
    )


_MEASURES = {
    QuotaKind.PERSON_DAY: "what you may use in a day",
    QuotaKind.PERSON_MONTH: "what you may use in a month",
    QuotaKind.SESSION: "what one conversation may use",
    QuotaKind.DAY: "what everybody together may use in a day",
}


def cap_notice(reached: QuotaReached, zone: ZoneInfo) -> str:
    """What is used up and when there is room again. How much others have used is nobody's business."""
    used = "" if reached.measure is QuotaKind.DAY else f" ({_amount(reached)})"
    return f"That is all of {_MEASURES[reached.measure]}{used}. {_again(reached, zone)}"


def cap_error(reached: QuotaReached) -> str:
    """For the record of the turn."""
    return f"{_CAPPED}{reached.measure}: {_amount(reached)} used"


def measure_of(error: str) -> QuotaKind | None:
    """Of the cap that a turn was over; None for one that failed for another reason."""
    found = error.removeprefix(_CAPPED).partition(":")[0]
    return QuotaKind(found) if error.startswith(_CAPPED) else None


_CAPPED = "over the cap of "


def _amount(reached: QuotaReached) -> str:
    cap, spent = reached.cap, reached.spent
    if cap.tokens is not None and spent.tokens >= cap.tokens:
        return f"{spent.tokens} of {cap.tokens} tokens"
    return f"{spent.cost_micros / 1_000_000:.2f} of {(cap.cost_micros or 0) / 1_000_000:.2f}"


def _again(reached: QuotaReached, zone: ZoneInfo) -> str:
    if reached.free is None:
        return "/new starts another; this one keeps your message, unanswered."
    free = reached.free.astimezone(zone)
    return f"Your message is kept, unanswered; there is room again from {free:%H:%M} on {free:%d %B} ({zone.key})."


def pairing_code(code: str) -> str:
    return (
        f"I do not know you yet. Your code is {code}: tell it to the owner of this gateway, who lets you in with "
        f"palaver pair approve {code}\nIt is good for one hour, and only the newest one counts. What you write until "
        "then waits with it."
    )


def refusal(error: PalaverError) -> str:
    """Why a command was not obeyed."""
    if isinstance(error, NotFound) and error.what == "session":
        return f"There is no conversation {quoted(error.name)} that you may see; /sessions lists yours."
    text = str(error)
    return text[:1].upper() + text[1:]


RECALLED = "The conversation that came here was taken back to where it came from."
RETURNED = "The conversation that was handed off is back here; if another one goes on by now, /resume lists it."
PARTED = "The conversation that this place was attached to is left for another; here you have your own again."


def attach_question(name: str, *, place_is_shared: bool) -> str:
    """Asked before a conversation is opened to a whole chat."""
    people = "takes part in it and can read all of it, from its beginning" if place_is_shared else "reads along"
    return (
        f"Attached to {name}, everybody in this chat {people}. Nothing is done yet; say the same with --yes at its end."
    )


def attached(name: str, *, reads_along: bool, has_others: bool) -> str:
    others = " Others take part in it and can read what is said here." if has_others else ""
    readers = " Everybody in this chat reads along." if reads_along else ""
    return f"What is said here goes to {name} from now on.{others}{readers} /detach ends that."


def handing_off(platform: str, *, reads_along: bool) -> str:
    readers = " Everybody who writes there can read it from its beginning." if reads_along else ""
    return f"On its way to the home channel of {platform}.{readers} Here you start fresh; /back brings it back."


def handoff_opening(name: str, platform: str) -> str:
    return (
        f"Handed over from {platform}: {name} goes on here. Whoever answers takes part in it and can read it from its "
        "beginning; /back sends it back."
    )


def handoff_note(old: str, new: str) -> str:
    return f"the user has moved this conversation from {old} to {new}"


def handed_off(platform: str) -> str:
    return f"The conversation goes on in the home channel of {platform}. /back brings it back here."


def not_handed_off(platform: str, *, is_here: bool) -> str:
    where = "it goes on here" if is_here else "/back returns to it"
    return f"The conversation could not be handed off to {platform}; {where}."
