"""The rules of the guide: what it understands, and what it says or which tool it uses then. Tried in order."""

import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo

from palaver.model.job import NAME_LIMIT
from palaver.model.memory import FORGET, REMEMBER
from palaver.model.prompt import SCHEDULE_JOB
from palaver.model.spoken_schedule import find_schedule
from palaver.model.text import as_code, as_code_block, one_line
from palaver.model.tools import ASK_USER, NOT_APPROVED
from palaver.model.value import value
from palaver.protocols.agent import (
    Request,
)

WHO = "I am Palaver's guide, not a language model."
_SHOWN = 3
_MAX_QUESTIONS = 3
_TIMES = ("in 1 minute", "in 1 hour", "tomorrow at 9am")
_ANY_CASE = re.IGNORECASE | re.DOTALL


class Use(NamedTuple):
    """A tool to use, and what to say of its result."""

    tool: str
    arguments: Mapping[str, object]
    tell: Callable[[str], str] = str
    again: int = 0
    """How often the turn has used the tool before."""


@value
class Asked:
    """What somebody wants, and where."""

    request: Request
    tools: frozenset[str]
    zone: ZoneInfo
    now: datetime
    is_owner: bool
    """The owner asks, at the terminal or in the window."""

    @property
    def notes(self) -> list[tuple[str, str]]:
        """Number and text of each note that the agent has here."""
        _, _, section = self.request.section.partition("## What you remember\n")
        return [(number, _unquoted(text)) for number, text in re.findall('^- ([0-9]+): (".*")$', section, re.MULTILINE)]

    @property
    def answers(self) -> list[str]:
        """What was answered to the questions of this turn."""
        ids = (call_id(self.request, ASK_USER, again) for again in range(_MAX_QUESTIONS))
        return [*takewhile(bool, (self.result_of(each) or "" for each in ids))]

    def result_of(self, call: str) -> str | None:
        """Return the result that a call of this turn has already."""
        messages = reversed(self.request.messages)
        return next((message.text for message in messages if message.answers == call), None)


def call_id(request: Request, tool: str, again: int = 0) -> str:
    return f"guide_{request.turn}_{tool}{f'_{again + 1}' if again else ''}"


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def _text(found: re.Match[str]) -> str:
    return next(filter(None, found.groups()), "")


# Reminders

_NOTHING = re.compile(r"(?:no|nope|never ?mind|cancel|forget it|nothing|stop|none)\b.{0,20}", re.IGNORECASE)

_JOB_MADE = re.compile(r"Job (?P<number>[0-9]+) runs (?:once, next (?P<once>.*)|(?P<often>.*))\.$")


def _remind(found: re.Match[str], asked: Asked) -> str | Use:
    said, answer = _words(found), ""
    for each in asked.answers:
        again = _REMINDER.pattern.fullmatch(without_politeness(each))
        if again and find_schedule(_words(again), asked.zone, asked.now).prompt:
            said, answer = _words(again), ""
        else:
            answer = _words(again) if again else each
    split = find_schedule(said, asked.zone, asked.now, answer)
    if split.schedule:
        text = split.prompt or "it is time"
        arguments = {"when": split.schedule, "prompt": f"Reminder: {text}", "name": text[:NAME_LIMIT]}
        return Use(SCHEDULE_JOB, arguments, _tell_reminder)
    if answer == NOT_APPROVED or _NOTHING.fullmatch(answer):
        return "No reminder was set."
    if answer and (other := apply_rules(answer, asked, besides=_REMINDER)):
        return other
    question = f"{split.problem} When?".strip()
    if len(asked.answers) < _MAX_QUESTIONS and ASK_USER in asked.tools:
        return Use(ASK_USER, {"question": question, "choices": list(_TIMES)}, again=len(asked.answers))
    return f"{split.problem or 'I do not know when.'} Try: remind me in 1 minute to stretch"


def _words(found: re.Match[str]) -> str:
    return " ".join(filter(None, found.groups()))


def _tell_reminder(result: str) -> str:
    if not (made := _JOB_MADE.match(result)):
        return result
    when = made["once"] or made["often"]
    return f"Reminder {made['number']} is set: {when}. It arrives here, even if Palaver restarts before then."


def _jobs(_found: re.Match[str], _asked: Asked) -> Use:
    return Use("list_jobs", {}, _tell_jobs)


def _tell_jobs(result: str) -> str:
    first = result.partition(" ")[0]
    return f"{result}\nTo remove one, say: cancel reminder {first}" if first.isdecimal() else result


def _cancel(found: re.Match[str], _asked: Asked) -> Use:
    return Use("change_job", {"job": _text(found), "action": "remove"})


# Commands

_BACKGROUND = re.compile(
    r"\b(?:in|on|to) the background\b|^(?:an? )?background(?: process| command| job)?\b", re.IGNORECASE
)
_FENCE = re.compile(r"^```[a-z]*\n|\n?```$|^`|`$", re.IGNORECASE)


def _run(found: re.Match[str], _asked: Asked) -> Use | None:
    command = _FENCE.sub("", _text(found).strip()).strip()
    if not command or _BACKGROUND.search(command):
        return None
    return Use("terminal", {"command": command}, partial(_tell_command, command))


def _start(found: re.Match[str], _asked: Asked) -> Use | None:
    command = _FENCE.sub("", _BACKGROUND.sub("", _text(found)).strip(" :")).strip()
    return Use("terminal", {"command": command, "background": True}, _tell_start) if command else None


def _tell_command(command: str, result: str) -> str:
    how, _, output = result.partition("\n")
    if not how.startswith("("):
        return result
    told = as_code_block(output) if output.strip() else "It wrote nothing."
    return f"{as_code(one_line(command, 200))} {how}\n{told}"


def _tell_start(result: str) -> str:
    if not result.startswith("Started"):
        return result
    started = result.partition(". ")[0]
    return f"{started}. You can go on here: I tell you when it ends, even if Palaver restarts before then."


def _processes(_found: re.Match[str], _asked: Asked) -> Use:
    return Use("process", {"action": "list"})


def _kill(found: re.Match[str], _asked: Asked) -> Use:
    return Use("process", {"action": "kill", "process": _text(found)})


# Memory and search

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_HIT = re.compile(
    rf"(?:{_QUOTED}|untitled) \([^()]*\), (?:#\d+, )?(?P<at>[^,]*), (?:overheard )?"
    rf"(?P<by>user|assistant|title)(?: (?P<who>.+?))?: (?P<said>{_QUOTED})"
)
"""What somebody said, with who it was if it was not the person who asks, or a title that matches."""
_SMALL = re.compile(
    "a|about|an|any|and|at|did|for|i|in|is|it|me|my|of|on|or|our|said|say|that|the|this|to|we|what|when|you|your",
    re.IGNORECASE,
)
_MAX_QUERY_WORDS, _MAX_HITS = 20, 5


def _note(found: re.Match[str], _asked: Asked) -> Use:
    return Use(REMEMBER, {"text": _text(found).strip(" .")}, _tell_note)


def _tell_note(result: str) -> str:
    if not result.startswith("Kept"):
        return result
    return f"{result.replace('this person', 'you')} It stays for all later conversations; `/memory` shows and edits it."


def _notes(_found: re.Match[str], asked: Asked) -> str:
    lines = [f"{number}. {text}" for number, text in asked.notes]
    return "\n".join(["I have noted:", *lines]) if lines else "I have noted nothing yet. Try: remember that I like tea"


def _forget(found: re.Match[str], asked: Asked) -> str | Use:
    wanted = _text(found).strip(" .#").casefold()
    for number, text in asked.notes:
        if wanted == number or (not wanted.isdecimal() and wanted in text.casefold()):
            return Use(FORGET, {"note": int(number)})
    return "I have no such note. Ask: what do you remember?"


def _search(found: re.Match[str], _asked: Asked) -> Use | None:
    words = [word for word in re.findall(r"\w+", _text(found)) if not _SMALL.fullmatch(word)]
    query = " ".join(f'"{word}"' for word in words[:_MAX_QUERY_WORDS])
    return Use("search", {"query": query, "limit": 20}, _tell_hits) if words else None


def _tell_hits(result: str) -> str:
    hits = [hit for line in result.splitlines() if (hit := _HIT.fullmatch(line))]
    if not hits:
        return result
    told: dict[str, list[str]] = {"You said:": [], "Others said:": [], "Titles:": []}
    for hit in hits:
        said = _unquoted(hit["said"])
        if hit["by"] == "title":
            told["Titles:"].append(f"- {hit['at']}: {said}")
        elif hit["by"] == "user" and not _SEARCH.pattern.fullmatch(said):
            who = f", {hit['who']}" if hit["who"] else ""
            told["Others said:" if who else "You said:"].append(f"- {hit['at']}{who}: {said}")
    lines = [line for heading, found in told.items() if found for line in (heading, *found[:_MAX_HITS])]
    return "\n".join(lines) or "Nothing was found."


# Words


def _hello(_found: re.Match[str], asked: Asked) -> str:
    return f"Hello! {WHO} I follow rules, and do things with the tools that a model would have.\n{try_next(asked)}"


def _help(_found: re.Match[str], asked: Asked) -> str:
    lines = [f"- {rule.what}: {rule.example}" for rule in shown(asked.tools)]
    return "\n".join([f"{WHO} This is what I can do here. Say for example:", *lines, "`/help` lists the commands."])


def _time(_found: re.Match[str], asked: Asked) -> str:
    return f"It is {asked.now.astimezone(asked.zone):%H:%M on %A, %Y-%m-%d} in {asked.zone.key}."


def _undo(_found: re.Match[str], _asked: Asked) -> str:
    return (
        "`/undo` takes back your last message and my answer, and `/redo` returns them. `/new` starts a fresh "
        "conversation, and `/back` returns to this one. Nothing is lost."
    )


def _connect(_found: re.Match[str], asked: Asked) -> str:
    return f"{WHO} {how_to_connect(asked)} The model then answers in this conversation, and knows what was said."


def how_to_connect(asked: Asked) -> str:
    if not asked.is_owner:
        return "The owner of this gateway can connect one with `palaver setup`."
    return "To connect a model, paste your API key here, run `palaver setup`, or open Settings, Model, in the window."


def _phone(_found: re.Match[str], asked: Asked) -> str:
    if not asked.is_owner:
        return "The owner of this gateway can connect chat apps with `palaver setup`."
    return (
        "To talk from Telegram: write /newbot to @BotFather there, run `palaver setup telegram`, and give it the token "
        "that you got. Then write to your bot. For another app, run `palaver setup` with its name, such as discord; "
        "`palaver platforms` lists them. Or open Settings, Accounts, in the window."
    )


def _thanks(_found: re.Match[str], asked: Asked) -> str:
    return f"You are welcome.\n{try_next(asked)}"


def _no_question(_found: re.Match[str], asked: Asked) -> str:
    return f"I asked you nothing just now.\n{try_next(asked)}"


def _bye(_found: re.Match[str], _asked: Asked) -> str:
    return "Goodbye. This conversation stays; write here to go on with it."


def try_next(asked: Asked) -> str:
    """Return what to say next: first what was not tried yet in this conversation."""
    used = {call.name for message in asked.request.messages for call in message.calls}
    rules = sorted((rule for rule in shown(asked.tools) if rule.tool), key=lambda rule: rule.tool in used)
    lines = [f"- {rule.example}" for rule in rules[:_SHOWN]]
    return "\n".join([*(["Try:", *lines] if lines else []), f"Say help for more. {how_to_connect(asked)}"])


def not_understood(asked: Asked) -> str:
    return f"I do not understand that. {WHO}\n{try_next(asked)}"


# The table


class Rule(NamedTuple):
    pattern: re.Pattern[str]
    act: Callable[[re.Match[str], Asked], str | Use | None]
    """Return what to say or do, or None if the rule is not meant."""
    tool: str = ""
    """It needs this tool."""
    example: str = ""
    what: str = ""


def _rule(
    pattern: str,
    act: Callable[[re.Match[str], Asked], str | Use | None],
    tool: str = "",
    example: str = "",
    what: str = "",
) -> Rule:
    return Rule(re.compile(rf"(?:{pattern})[\s.!?]*", _ANY_CASE), act, tool, example, what)


_SHELL = "ls|pwd|date|uptime|df|free|whoami|uname|hostname|sleep|echo|cat|ps|du|ping|curl|git|make|python3?"
_COMMAND = r"(?:(?:run|execute|exec)(?: (?:the|a|this) (?:shell )?(?:command|program|process))?[\s:]+|\$ )(.+?)"
_SEARCH = _rule(
    r"(?:what|when|where|did|have) (?:(?:did|have|had) )?(?:i|we|you) (?:ever )?"
    r"(?:say|said|tell|told|talk|write|mention|discuss)\w*\b(.+)"
    r"|(?:search|find|look (?:up|for)|grep)\b(.+)|do you remember( .+)",
    _search,
    "search",
    "what did I say about tea?",
    "Search what was said",
)
_POLITE = re.compile(
    r"(?:(?:hey|hi|hello|ok|okay|please|and|now|so|then|also|guide|palaver|i(?: want| would like|'d like) you to"
    r"|(?:can|could|would|will) you|let'?s)\b[\s,!]*)+(?=\w|`|\$)",
    re.IGNORECASE,
)
_GREETING = "hi|hello|hey|hiya|howdy|yo|good (?:morning|day|afternoon|evening)|greetings|hallo|hola|salut|bonjour|test"
_REMINDER = _rule(
    r"(?:set|make|create|add)(?: me)?(?: up)?(?: an?)? (?:reminder|alarm|timer)\b(.*)"
    r"|(?:remind|wake|ping|alert)(?: me)?(?: up)?\b(.*)|(.{1,80}?),? (?:please )?remind me\b(.*)",
    _remind,
    SCHEDULE_JOB,
    "remind me in 1 minute to stretch",
    "Remind you",
)
RULES = (
    _REMINDER,
    _rule(
        rf"{_COMMAND}(?: for me)?(?: please)?|((?:ls|pwd|date|uptime|df|free|whoami|uname|hostname|ps)(?: [-/~.].*)?)",
        _run,
        "terminal",
        "run date",
        "Run a command, after you approve it",
    ),
    _rule(
        rf"(?:start|run|launch|execute)(?: an?| this)? ((?:in the )?background\b.+)|{_COMMAND}"
        rf"|((?:{_SHELL})\b.* in the background)",
        _start,
        "terminal",
        "run sleep 20 in the background",
        "Report when a command has ended",
    ),
    _rule(
        r"(?:what(?:'s| is)|which processes are) running|(?:list |show )?(?:the )?processes",
        _processes,
        "process",
    ),
    _rule(r"(?:stop|kill|end)(?: process)? (p[0-9]+)", _kill, "process"),
    _rule(
        r"(?:what|which|how much)(?: \w+)? (?:do|did|can|have) you (?:remember|know|noted?|kept)\b.{0,40}"
        r"|(?:(?:list|show)(?: me)? )?(?:my|your|the) (?:notes|memory|memories)",
        _notes,
        REMEMBER,
    ),
    _rule(
        r"(?:remember|note|keep in mind|memori[sz]e|(?:make|take|keep) a note|write down|save|do(?:n'?t| not) forget)"
        r"(?: down)?(?: this| of this)?(?:[,:]| that\b| of\b)*(.+)"
        r"|((?:my name is|call me|i (?:like|love|prefer|hate|live in|work)) .+)",
        _note,
        REMEMBER,
        "remember that I like tea",
        "Keep a note",
    ),
    _SEARCH,
    _rule(r"forget (?:about |that |the |my )*(?:notes? )?(.+)", _forget, FORGET),
    _rule(
        r"(?:cancel|remove|delete|stop)(?: my| the)? (?:reminder|job|alarm|timer)s? ?#?([0-9]+)", _cancel, "change_job"
    ),
    _rule(r"(?:(?:list|show|what|which|my)\b.{0,20})?\b(?:reminders|jobs|alarms|timers)\b.{0,20}", _jobs, "list_jobs"),
    _rule(
        r".{0,40}\b(?:undo|take (?:that|it|this) back|made a mistake|start (?:over|again)|new (?:chat|conversation))\b"
        r".{0,40}|oops",
        _undo,
        "",
        "how do I undo?",
        "Take back what was said",
    ),
    _rule(r"what(?:'s| is)? (?:the )?(?:time|date|day|today)\b.{0,20}", _time),
    _rule(
        r".{0,80}\b(?:telegram|whatsapp|discord|slack|signal|matrix|imessage|phone|mobile|chat apps?)\b.{0,80}", _phone
    ),
    _rule(
        r".{0,80}\b(?:api.?keys?|connect|models?|(?:chat)?gpt|openai|anthropic|claude|gemini|mistral|ollama|llm)\b.{0,80}",
        _connect,
        "",
        "connect a model",
        "Say how to get a real model",
    ),
    _rule(
        r"(?:who|what)(?:'s| are| is) (?:you|this|palaver|that)\b.{0,40}|are you (?:an? )?\w.{0,40}"
        r"|your name.{0,20}|what is your name|tell me about (?:yourself|palaver)|introduce yourself",
        _hello,
    ),
    _rule(rf"(?:{_GREETING})\b(?:\W+\w+){{0,6}}", _hello),
    _rule(
        r"/?help\b.{0,40}|\?+|what (?:can|could|do|should) (?:you|i)\b.{0,40}|how (?:do|does|can)\b.{0,60}"
        r"|(?:now )?what(?: now| next| else)?|examples?|commands|show me.{0,40}|tutorial|tour|start|demo|more|next",
        _help,
    ),
    _rule(
        r"(?:thanks?|thank you|thx|ty|cheers|danke|merci|gracias|great|cool|nice|wow|awesome|perfect|well done"
        r"|good)\b(?:\W+\w+){0,4}",
        _thanks,
    ),
    _rule(r"(?:yes|yep|yeah|no|nope|okay|ok|sure)\b(?:\W+\w+){0,4}", _no_question),
    _rule(r"(?:good ?)?bye\b.{0,20}|quit|exit|see you\b.{0,20}", _bye),
)


def shown(tools: Collection[str]) -> list[Rule]:
    """Return the rules to show: those that work with these tools."""
    return [rule for rule in RULES if rule.example and (not rule.tool or rule.tool in tools)]


def without_politeness(text: str) -> str:
    return _POLITE.sub("", text, count=1) if _POLITE.match(text) else text


def apply_rules(text: str, asked: Asked, besides: Rule | None = None) -> str | Use | None:
    for rule in RULES:
        if rule is not besides and (found := rule.pattern.fullmatch(text)):
            if rule.tool and rule.tool not in asked.tools:
                return f"I cannot do that for you here.\n{try_next(asked)}"
            if what := rule.act(found, asked):
                return what
    return None
