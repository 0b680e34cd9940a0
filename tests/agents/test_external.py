"""What an agent of another maker says of its calls, and what becomes of it."""

from palaver.agents.external import Exchange
from palaver.agents.wire import FromAgent, Reply, WireApprovalNeeded, WireAsk, WireCall, WireToolCalled, parse_line
from palaver.model.tools import Question, parse_question
from palaver.model.transcript import Role, ToolCall
from palaver.model.view import Message
from palaver.protocols.agent import ApprovalNeeded, Event, Failure
from palaver.protocols.tools import Tool
from tests.agents.helpers import Tools, asked

WEATHER = WireCall(id="a", name="weather", arguments="{}")
SEND = WireCall(id="a", name="send_message", arguments='{"to": "other:1"}')


def tools() -> Tools:
    return Tools(tools=[Tool(name="send_message", description="", parameters={"type": "object"}, needs_approval=True)])


async def said(exchange: Exchange, *lines: FromAgent) -> list[Event | Reply]:
    return [event for line in lines async for event in exchange.handle(line)]


async def test_a_question_is_about_no_call_but_the_one_it_names() -> None:
    """The second of two calls with one id is written down as a_2: who asks about that asks about none of them."""
    harmless = WireApprovalNeeded(call=WEATHER_AS_WRITTEN, question="May I look up the weather?")
    *_, needed = await said(Exchange(asked("hi", tools=tools())), WireToolCalled(calls=(WEATHER, SEND)), harmless)
    assert isinstance(needed, ApprovalNeeded)
    assert (needed.call.name, needed.question) == ("weather", "May I look up the weather?")
    assert needed.call.id not in {"a", "a_2"}


WEATHER_AS_WRITTEN = WireCall(id="a_2", name="weather", arguments="{}")


async def test_a_question_about_a_call_that_is_open_is_about_what_was_written_down() -> None:
    written = Message(Role.ASSISTANT, "", (ToolCall("a_2", "send_message", '{"to": "other:1"}'),))
    lie = WireApprovalNeeded(call=WEATHER_AS_WRITTEN, question="May I look up the weather?")
    (needed,) = await said(Exchange(asked("hi", written, tools=tools())), lie)
    assert isinstance(needed, ApprovalNeeded)
    assert (needed.call.id, needed.call.name, needed.question) == ("a_2", "send_message", "May I send_message?")


async def test_an_agent_asks_the_person_in_words() -> None:
    line = parse_line(b'{"type": "ask", "id": "1", "question": "Where to?", "choices": ["Paris", "Rome"]}')
    (needed,) = await said(Exchange(asked("hi")), line)
    assert isinstance(needed, ApprovalNeeded)
    assert parse_question(needed.call) == Question(text="Where to?", choices=("Paris", "Rome"))
    for bad in (
        WireAsk(question=" "),
        WireAsk(question="?", choices=("",)),
        WireAsk(question="?", choices=("a",) * 11),
    ):
        (failed,) = await said(Exchange(asked("hi")), bad)
        assert isinstance(failed, Failure)
