"""Every sentence that the gateway says in a chat or to the agent."""

from collections.abc import Mapping, Sequence
from zoneinfo import ZoneInfo

from palaver.model.access import BLOCKED, AccessRole
from palaver.model.attachment import Attachment, format_size
from palaver.model.command import as_said
from palaver.model.errors import InvalidInput, NotFound, PalaverError
from palaver.model.providers import spell_model
from palaver.model.quotas import QuotaKind, QuotaReached
from palaver.model.text import listed, one_line, quoted
from palaver.model.tools import Question
from palaver.model.turn import BusyMode, Choice

SORRY = "Something went wrong while answering. Please try again."
GOES_ON_IN_FILE = "… (This answer is too long for a chat. The file below has all of it.)"
CONTINUED_IN_FILE = "… (This answer is too long to show here. It goes on in the attached file answer.md.)"
NOT_KEPT = "… (This answer is too long and was cut here.)"
CUT = "… (This answer reached the model's length limit and stops here. Say “go on” for the rest.)"
TOO_LONG = "The answer took too long and was stopped. Please try again."
OVERFLOW = (
    "This conversation is too long to answer, and summarising it failed. "
    "/new starts a fresh one; /back returns to this one."
)
NO_ANSWER = "I have no answer to that: the model ended without a word. Please ask again, or put it differently."
RATE_LIMITED = "The model is getting too many requests right now. Please try again in a few minutes."
REJECTED = (
    "The model does not accept this message, so trying it again will not help. Change it, or leave out its files."
)
UNAVAILABLE = "The model is not available right now. Please try again later."
GIVEN_UP = (
    "I could not answer your last message: the gateway restarted several times while I tried. "
    "Your next message starts a fresh conversation; /back returns to this one."
)
STALE = "I could not answer your last message: the gateway was away for too long. Please send it again."
DONE = "Done."
STOPPED = "Stopped."
MAY_BE_DUPLICATE = "(may be a duplicate)"
ASKED_FIRST = "Your message is queued. Answer the open question with /approve or /deny first, or drop it with /stop."
WITHDRAWN = "I withdrew my question, and nothing was approved. I am answering your message now."
WITHDRAWN_NOTE = "the user sent another message instead of answering your question; nothing was approved"
STOPPED_NOTE = "the user stopped your last answer"
INTERRUPTED_NOTE = "a newer message stopped your last answer"
SAID_BEFORE = "; what you had said by then is above"
EMPTY_NOTE = "your answer was empty, and the user waits for one: answer now"
NO_ANSWER_NOTE = "your last answer was empty; the user was told that there was none"
FAILED_NOTE = "your last answer failed; the user was asked to try again"
STALE_NOTE = "the gateway was away for too long while you were answering; the user was asked to send the message again"
TOO_LONG_NOTE = "your last answer was stopped because it took too long"
JOB_FAILED_NOTE = "your last answer failed; the owner of the job knows"
JOB_BROKE = "the agent could not answer"
JOB_TOO_LONG = "it took too long"
JOB_OVERFLOW = "its conversation is too long for the model"
JOB_RATE_LIMITED = "the model is getting too many requests"
JOB_CUT_OFF = "the gateway was stopped while it ran"
CAPPED_NOTE = "the message above was not answered because a usage limit was reached"
LEFT_NOTE = "the user left without answering your question; nothing was approved"
NO_HOME = "There is no home channel for such notices yet. Send /sethome in the chat that should receive them."
NO_LONGER_ANSWERED = "I cannot answer your message: you no longer have access. Only the owner can give it to you."
BLOCKED_MEANWHILE = "I cannot answer your message: you were blocked here."
PAIRED = "You are approved. I am answering what you wrote."


def asked_at_home(where: str) -> str:
    """Begin a question in the home channel with the place where it was asked."""
    return f"Somebody who cannot decide this needs your answer ({where})."


def access_lost(reason: str) -> str:
    """Tell somebody whose message was accepted why it is not answered."""
    return BLOCKED_MEANWHILE if reason == BLOCKED else NO_LONGER_ANSWERED


def cut_answer(text: str) -> str:
    """Return an answer that its model could not finish, as people see it: it says so."""
    return f"{text}\n\n{CUT}"


def how_to_approve(name: str = "") -> str:
    """Say how to answer a question, with its name where the answer comes from outside its conversation."""
    which = f" {name}" if name else ""
    return f"Reply /approve{which} or /deny{which}."


def how_to_answer(question: Question, name: str = "") -> str:
    """Say how to answer a question in words, like `how_to_approve`."""
    if name:
        return f"Reply /answer {name} and {'a number or ' if question.choices else ''}your words, or /deny {name}."
    return "Reply with a number, or in your own words." if question.choices else "Reply in your own words."


def who_decides(role: AccessRole, name: str, *, command: str, is_direct: bool, is_asked: bool, can_deny: bool) -> str:
    """Say who can answer a question and where, to somebody who cannot. Nobody else is in a direct chat."""
    who = "the owner" if role is AccessRole.OWNER else "an admin"
    here = "" if is_direct else f", here with /{command} {name}"
    asked = f" I {'' if is_direct else 'also '}asked in the home channel." if is_asked else ""
    deny = " You can deny it with /deny." if can_deny else ""
    return f"Only {who} can {command} this{here}.{asked} The owner can do it on the dashboard.{deny}"


def approval_choices(question: str) -> tuple[Choice, ...]:
    """Name the question in each choice, so that a late press cannot answer another question."""
    return Choice("Approve", f"/approve {question}"), Choice("Deny", f"/deny {question}")


def answer_choices(asked: Question, question: str) -> tuple[Choice, ...]:
    """Offer each choice by its number."""
    return tuple(Choice(label, f"/answer {question} #{number}") for number, label in enumerate(asked.choices, 1))


def cut_off_note(attempt: int) -> str:
    return (
        f"the gateway restarted while you were answering (attempt {attempt}); "
        "tool calls without a result may have taken effect, so check before you repeat them"
    )


_QUEUED = "Still answering. Your message is queued."
BUSY_NOTICES = {
    BusyMode.QUEUE: _QUEUED,
    BusyMode.COLLECT: "Still answering. I will answer everything you send until then together.",
    BusyMode.INTERRUPT: _QUEUED,
    BusyMode.STEER: (
        "Still answering. Your message joins this answer if it has another step; otherwise it comes next."
    ),
}
COMMAND_QUEUED = "Still answering. Your command is queued."


def compacted(entries: int) -> str:
    messages = "1 earlier message. It stays" if entries == 1 else f"{entries} earlier messages. They stay"
    return f"Summarised {messages} in the transcript; /back undoes the summary."


def not_compacted(why: str) -> str:
    return f"Nothing was summarised: {why}."


def not_compacted_alone(why: str) -> str:
    return (
        f"This conversation is getting too long for the model, and summarising it failed: {why}. I will retry later. "
        "/compress tries again now; /new starts fresh."
    )


def went_back(hidden: int) -> str:
    followed = " and everything after it" if hidden > 1 else ""
    return f"You deleted a message, so I removed it{followed} from this conversation. /back restores it."


def file_left(file: Attachment) -> str:
    name = f"The file {file.name.plain()} ({format_size(file.size)})"
    if file.id is None:
        return f"{name} could not be sent: {file.problem}."
    return f"{name} cannot be sent to this chat. On the gateway's machine, get it with: palaver file {file.id}"


def gone_notice(place: str) -> str:
    return f"Messages to {place} can no longer be delivered: {CHAT_GONE}."


def unclear_notice(message: str) -> str:
    return (
        f"I do not know whether my message {message} arrived. On the gateway's machine, `palaver trace {message}` shows"
        " where it was going and settles it; `palaver trace --state unclear` lists all such messages."
    )


def refused_notice(message: str) -> str:
    return (
        f"The platform did not take my message {message}. On the gateway's machine, `palaver trace {message}` says"
        " why; `palaver doctor` lists others."
    )


def commits_missing(began: str, missing: Sequence[str]) -> str:
    lost = listed(missing, _MAX_MISSING, "; ")
    known = f"What I had stored and no longer find: {lost}. More" if missing else "I find all that I remember, but more"
    return (
        f"The database was promoted or restored at {began}, and commits can be missing. {known} can be missing. What is"
        " sent again is marked as a possible duplicate. `palaver doctor` shows this until you run `palaver doctor"
        " --dismiss`."
    )


_MAX_MISSING = 10


def agent_problem(problem: str, turn: int) -> str:
    return f"{problem} palaver trace turn:{turn} shows what happened."


def answers_instead(problem: str, model: str, turn: int) -> str:
    return f"{agent_problem(problem, turn)} Until then {spell_model(model)} answers instead."


def not_answered(problem: str, turn: int) -> str:
    """Say to the owner why they got no answer."""
    return f"I could not answer. {agent_problem(problem, turn)}"


def job_failed(name: str, number: int, why: str) -> str:
    return f"The job “{as_said(name)}” failed: {why}. /jobs show {number} shows its last runs."


def job_over_limit(name: str, reached: QuotaReached) -> str:
    return f"The job “{as_said(name)}” did not run because of {_MEASURES[reached.measure]}."


def job_paused(name: str, number: int) -> str:
    return (
        f"I paused the job “{as_said(name)}” because it could not start. `palaver doctor` and the log on the gateway's "
        f"machine say why. Once that is fixed, /jobs resume {number} lets it run again."
    )


def job_target_dead(name: str, number: int, firings: int) -> str:
    return (
        f"I paused the job “{as_said(name)}” because its last {firings} answers reached no chat. /jobs show {number} "
        f"shows where it sends. Once that works again, /jobs resume {number} lets it run."
    )


NEEDS_ADMIN = "needs the admin role"
CHAT_GONE = "the chat is gone or the bot was removed from it"
UNKNOWN_TARGET = "this gateway no longer has the platform"


def unreachable_targets(problems: Mapping[str, str]) -> str:
    """Return the targets that nothing can be sent to, each with the reason."""
    return ", ".join(f"{target} ({why})" for target, why in problems.items())


def job_not_sent(name: str, number: int, unreachable: str, *, runs: bool) -> str:
    """Report targets that the answer of a job does not reach. Without any other it does not run."""
    happened = "cannot reach every target:" if runs else "did not run: it cannot send to"
    return f"The job “{as_said(name)}” {happened} {unreachable}. /jobs show {number} shows where it sends."


def job_missed(name: str, prompt: str) -> str:
    """Report a missed reminder with its text, because it will not come any more."""
    text = "" if one_line(prompt, len(prompt) + 1) == name else f"\n{as_said(prompt)}"
    return f"I was away when the job “{as_said(name)}” was due, so it did not run.{text}"


_MEASURES = {
    QuotaKind.PERSON_DAY: "your daily limit",
    QuotaKind.PERSON_MONTH: "your monthly limit",
    QuotaKind.SESSION: "the limit for one conversation",
    QuotaKind.DAY: "the daily limit for everybody together",
}


def cap_notice(reached: QuotaReached, zone: ZoneInfo) -> str:
    """Say which limit is reached and when it ends, but not how much other people used."""
    kept = "Your message is kept but not answered."
    if reached.is_never_free:
        return (
            f"The owner of this gateway has set {_MEASURES[reached.measure]} to zero. {kept} Ask the owner to raise it."
        )
    if reached.is_unpriced:
        return (
            f"I cannot check {_MEASURES[reached.measure]}: it limits money, and the price of the model is unknown. "
            f"{kept} Ask the owner of this gateway to set the price."
        )
    used = "" if reached.measure is QuotaKind.DAY else f" ({_amount(reached)})"
    return f"You have reached {_MEASURES[reached.measure]}{used}. {kept} {_again(reached, zone)}"


def cap_error(reached: QuotaReached) -> str:
    """Return what the turn records as its error."""
    return f"{_CAPPED}{reached.measure}: {_amount(reached)} used"


_CAPPED = "over the limit "


def _amount(reached: QuotaReached) -> str:
    cap, spent = reached.cap, reached.spent
    if cap.tokens is not None and spent.tokens >= cap.tokens:
        return f"{spent.tokens} of {cap.tokens} tokens"
    unknown = " + unknown" if spent.unpriced_tokens else ""
    return f"{spent.cost_micros / 1_000_000:.2f}{unknown} of {(cap.cost_micros or 0) / 1_000_000:.2f}"


def _again(reached: QuotaReached, zone: ZoneInfo) -> str:
    if reached.free is None:
        return "/new starts another conversation."
    free = reached.free.astimezone(zone)
    return f"Try again from {free:%H:%M} on {free:%d %B} ({zone.key})."


def pairing_code(code: str) -> str:
    return (
        f"I do not know you yet. Your code is {code}. Give it to the owner of this gateway, who approves you with: "
        f"palaver pair approve {code}\nThe code is valid for one hour, and only your newest code works. "
        "I will answer what you write as soon as you are approved."
    )


NO_PAIRING_CODE = (
    "I do not know you yet. The owner of this gateway knows that you wrote. "
    "I will answer what you write as soon as you are approved."
)


def access_asked(who: str, account: str, command: str) -> str:
    return (
        f"{who} asks {account} for access. Approve with /pair approve {command}, or refuse with /pair deny {command}."
    )


def more_access_asked(account: str) -> str:
    return f"More people ask {account} for access. /pair lists them."


def refusal_answer(error: PalaverError) -> str:
    """Return why a command was refused, with what the person typed marked as theirs."""
    given = error.name if isinstance(error, NotFound) else error.found if isinstance(error, InvalidInput) else ""
    told = refusal(error).replace(quoted(given), as_said(quoted(given))) if given else refusal(error)
    return told + _LISTED.get(error.what, "") if isinstance(error, NotFound) else told


_LISTED = {"job": " /jobs lists yours.", "note": " /memory lists them.", "process": " /processes lists them."}
"""How to find what there is, where something is not found."""


def refusal(error: PalaverError) -> str:
    """Return why a command was refused, as a sentence."""
    if isinstance(error, NotFound) and error.what == "conversation":
        return "You have not taken part in the conversation here, so you cannot bring it back."
    if isinstance(error, NotFound) and error.what == "session":
        return f"There is no conversation {quoted(error.name)}. /sessions lists yours."
    text = str(error)
    return text[:1].upper() + text[1:]


RECALLED = "This conversation was moved back to where it came from."
RETURNED = "The conversation you handed off is back. If another one is open here by now, /resume lists it."
PARTED = (
    "This chat is no longer attached: the other chat switched to another conversation. You have your own here again."
)


def attach_question(name: str, *, place_is_shared: bool) -> str:
    """Ask before a conversation is opened to everybody in a chat."""
    people = "takes part and can read all of it" if place_is_shared else "can read it"
    return (
        f"If you attach this chat to {name}, everybody here {people}. Nothing has changed yet. To confirm, add --yes."
    )


def attached(name: str, *, reads_along: bool, has_others: bool, place_is_shared: bool) -> str:
    others = " Others take part and can read what you write here." if has_others else ""
    takes_part = "takes part and can read all of it" if place_is_shared else "can read it"
    readers = f" Everybody here {takes_part}." if reads_along else ""
    return f"This chat now continues {name}.{others}{readers} /detach leaves it."


EVERYBODY_THERE = "everybody who writes there"


def handoff_question(platform: str, readers: str) -> str:
    """Ask before a conversation is moved to where others read it."""
    return (
        f"If you move this conversation to the home channel of {platform}, {readers} can read all of it. "
        "Nothing has changed yet. To confirm, add --yes."
    )


def handing_off(platform: str, readers: str) -> str:
    reading = f", where {readers} can read all of it" if readers else ""
    start = f"Moving this conversation to the home channel of {platform}{reading}."
    return f"{start} You start fresh here; /back brings it back."


def id_changed(old: str, new: str) -> str:
    return (
        f"{old} is {new} now. The configuration still names {old} in its grants: change it there, "
        "since somebody else can get the old one."
    )


def handoff_opening(name: str, platform: str) -> str:
    return (
        f"{name} continues here, handed off from {platform}. Anyone who replies takes part and can read all of it. "
        "/back sends it back."
    )


def handoff_note(old: str, new: str) -> str:
    where = f"to another chat on {new}" if old == new else f"from {old} to {new}"
    return f"the user moved this conversation {where}"


def handed_off(platform: str) -> str:
    return f"The conversation continues in the home channel of {platform}. /back brings it back here."


def not_handed_off(platform: str, *, is_here: bool) -> str:
    where = "It continues here" if is_here else "/back returns to it"
    return f"The conversation could not be handed off to {platform}. {where}."


def transcribed(said: str) -> str:
    return f"[Transcribed from a voice message] {said}"


def not_transcribed(why: str) -> str:
    """Return what stands in the transcript instead of the words: the agent answers it."""
    return f"[A voice message that could not be transcribed: {why}. Tell the person so.]"
