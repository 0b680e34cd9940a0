"""The guide: answers where no model is configured, shows what Palaver does, and says how to connect a model."""

import json
import re
from collections.abc import AsyncGenerator, Collection, Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from palaver.agents.guide_rules import (
    WHO,
    Asked,
    Rule,
    Use,
    apply_rules,
    call_id,
    how_to_connect,
    not_understood,
    shown,
    without_politeness,
)
from palaver.model.session import ModelOverride
from palaver.model.tools import ASK_USER, NOT_APPROVED
from palaver.model.transcript import ToolCall
from palaver.model.value import value
from palaver.model.view import INTERRUPTED, brief_summary, brief_title, last_said, open_calls
from palaver.protocols.agent import (
    ApprovalNeeded,
    Event,
    Excerpt,
    Final,
    GeneratedText,
    Request,
    TextDelta,
    ToolCalled,
    ToolReturned,
)

_MAX_LENGTH = 2_000
"""No rule looks at a longer message."""


@value
class GuideAgent:
    """The agent where none is configured."""

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        asked = _asked(request)
        text = _decide(asked)
        if isinstance(text, Use):
            use, text = text, ""
            async for event in _perform(use, asked):
                yield event
                if isinstance(event, ApprovalNeeded):
                    return
                text = event.text if isinstance(event, ToolReturned) else text
            text = _tell(use, text or asked.result_of(call_id(request, use.tool, use.again)) or "", asked)
        for word in re.findall(r"\s*\S+|\s+$", text):
            yield TextDelta(word)
        yield Final(text=text)

    def suggestions(self, tools: Collection[str]) -> Sequence[str]:
        return [rule.example for rule in shown(tools)]

    def unpriced_models(self) -> Sequence[str]:
        """Return nothing: it is free."""
        return ()

    def context_window(self, override: ModelOverride | None) -> int | None:  # noqa: ARG002
        """Return None: nothing is too long for it."""
        return None

    async def summarise(self, passage: Excerpt) -> GeneratedText:
        return GeneratedText(text=brief_summary(passage.messages, passage.focus))

    async def title(self, passage: Excerpt) -> GeneratedText:
        return GeneratedText(text=brief_title(passage.messages))


def _decide(asked: Asked) -> str | Use:
    said = last_said(asked.request.messages)
    if said.by_process:
        return said.text[:1].upper() + said.text[1:]
    if said.by_job:
        return said.text
    if not said.text:
        return f"I cannot look at files or pictures. {WHO} {how_to_connect(asked)}"
    if len(said.text) > _MAX_LENGTH:
        return f"That is too long for me. {not_understood(asked)}"
    # Unanswered messages are joined; the last of them counts if all together mean nothing.
    for text in (said.text, said.text.rpartition("\n\n")[2]):
        for words in dict.fromkeys((without_politeness(text), text)):
            if what := apply_rules(words.strip(), asked):
                return what
    return not_understood(asked)


async def _perform(use: Use, asked: Asked) -> AsyncGenerator[Event]:
    """Use the tool once per turn: a turn that goes on after an approval or a restart has the call already."""
    request = asked.request
    call = ToolCall(id=call_id(request, use.tool, use.again), name=use.tool, arguments=json.dumps(use.arguments))
    if asked.result_of(call.id) is not None:
        return
    if call.id not in {known.id for known in open_calls(request.messages)}:
        yield ToolCalled(calls=(call,))
    question = str(use.arguments["question"]) if use.tool == ASK_USER else await request.toolbox.question(call)
    if question and call.id not in request.approvals:
        yield ApprovalNeeded(call=call, question=question)
    elif not request.approvals.get(call.id, True):
        yield ToolReturned(call=call.id, text=NOT_APPROVED)
    else:
        yield ToolReturned(call=call.id, text=await request.toolbox.use(call))


def _tell(use: Use, result: str, asked: Asked) -> str:
    if result in {"", INTERRUPTED}:
        return "I was interrupted, so I do not know whether that was done. Check before you ask again."
    text = "Nothing was done, because you did not approve it." if result == NOT_APPROVED else use.tell(result)
    unused = (rule.example for rule in shown(asked.tools) if rule.tool and not _was_used(rule, use, asked))
    following = f"Try next: {next(unused, 'connect a model')}"
    was_said = following.endswith("a model") and any(following in message.text for message in asked.request.messages)
    return text if was_said else f"{text}\n\n{following}"


def _was_used(rule: Rule, use: Use, asked: Asked) -> bool:
    return rule.tool == use.tool or any(
        call.name == rule.tool for message in asked.request.messages for call in message.calls
    )


def _asked(request: Request) -> Asked:
    facts = request.facts()
    where = (facts.source.get("platform"), facts.source.get("user_id")) if facts else (None, None)
    return Asked(
        request=request,
        tools=frozenset(tool.name for tool in request.toolbox.tools),
        zone=ZoneInfo(facts.zone if facts else "UTC"),
        now=facts.at if facts else datetime.now(UTC),
        is_owner=where[0] == "terminal" or where == ("web", "owner"),
    )
