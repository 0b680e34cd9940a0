"""What the chat shows of a conversation: messages, whole answers, and what goes on."""

from datetime import UTC, datetime, timedelta

from palaver.model.key import Scope, derive_key
from palaver.model.source import Source
from palaver.model.tools import NOT_APPROVED
from palaver.model.transcript import Entry, Role, ToolCall
from palaver.model.turn import Turn, TurnState
from palaver.model.versions import Choice
from palaver.store.status.chat_list import AnswerFacts
from palaver.store.status.overview import OpenTurn
from palaver.store.status.webchat_log import WebchatMessage
from palaver.web.conversation_view import Around, arrange
from palaver.web.growing_answer import GrowingAnswer
from tests.web.demo_data import entry

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CALL = ToolCall("c1", "pay", '{"to": "Ann", "amounts": [1, 2]}')


def said(seq: int, text: str, role: Role = Role.ASSISTANT, turn: str | None = "7", **more: object) -> Entry:
    return entry(text, NOON + timedelta(seconds=seq), role, seq=seq, turn=turn, **more)


def test_all_that_an_agent_does_in_a_turn_is_one_answer() -> None:
    entries = [
        said(1, "pay her", Role.USER, message_id="m1"),
        said(2, "I look.", calls=(CALL,), reasoning="hm"),
        said(3, "done", Role.TOOL, answers="c1"),
        said(4, "**Paid.**"),
    ]
    user, answer = arrange(entries, None, Around())
    assert (user.kind, user.text, user.message_id) == ("user", "pay her", "m1")
    reasoning, first, tool, last = answer.parts
    assert (reasoning.reasoning, first.html, last.html) == ("hm", "<p>I look.</p>", "<p><strong>Paid.</strong></p>")
    assert tool.tool
    assert (tool.tool.state, tool.tool.result) == ("done", "done")
    assert tool.tool.arguments == [("to", "Ann"), ("amounts", "[\n 1,\n 2\n]")]


def open_turn(asked: ToolCall | None = None) -> OpenTurn:
    key = derive_key(Source(platform="web", chat_id="ann", user_id="ann"), Scope())
    state = TurnState.PARKED if asked else TurnState.RUNNING
    turn = Turn(
        number=7,
        key=key,
        session="s",
        session_number=1,
        state=state,
        attempt=1,
        fence=1,
        worker="w",
        started=NOON,
        lease_until=NOON,
    )
    return OpenTurn(turn=turn, session=None, asked=asked, question="7-1" if asked else None)  # pyright: ignore[reportArgumentType]


def test_what_grows_is_shown_once() -> None:
    growing = GrowingAnswer("s", 0)
    growing.grow("I lo")
    entries = [said(1, "pay her", Role.USER)]
    around = Around(open_turn=open_turn(), growing=(7, growing))
    shown = arrange(entries, None, around)[-1]
    assert (shown.is_running, shown.growing) == (True, growing)
    stored = arrange([*entries, said(2, "I look.", calls=(CALL,))], None, around)[-1]
    assert (stored.growing, stored.parts[0].html) == (None, "<p>I look.</p>")
    asks = arrange([*entries, said(2, "", calls=(CALL,))], None, Around(open_turn=open_turn(CALL)))[-1]
    assert (asks.is_running, asks.parts[0].tool and asks.parts[0].tool.state) == (False, "asks")


def test_notices_stand_where_they_were_given_and_what_waits_at_the_end() -> None:
    asides = [
        WebchatMessage(name="out--1", id="", at=NOON + timedelta(seconds=2), text="Stopped.", is_mine=False),
        WebchatMessage(name="in-9", id="m9", at=NOON, text="later", is_mine=True, waits=True),
        WebchatMessage(name="in-1", id="m1", at=NOON, text="one", is_mine=True),
    ]
    entries = [said(1, "one", Role.USER, message_id="m1"), said(5, "two", Role.USER, turn="8")]
    shown = arrange(entries, None, Around(asides=asides))
    assert [item.text for item in shown] == ["one", "Stopped.", "two", "later"], "what is stored is not said twice"
    failed = arrange(entries, None, Around(failures={8: "No answer."}))
    assert [(item.kind, item.problem) for item in failed] == [("user", ""), ("user", ""), ("answer", "No answer.")]


def test_a_call_that_was_denied_is_not_shown_as_done() -> None:
    entries = [said(1, "", calls=(CALL,)), said(2, NOT_APPROVED, Role.TOOL, answers="c1")]
    (answer,) = arrange(entries, None, Around())
    assert answer.parts[0].tool
    assert answer.parts[0].tool.state == "denied"


def test_an_answer_that_the_model_could_not_finish_says_so() -> None:
    (answer,) = arrange([said(1, "It begins", cut=True)], None, Around())
    assert "length limit" in str(answer.parts[0].html)


def test_notes_to_the_model_are_not_shown_and_a_stop_is() -> None:
    stopped = AnswerFacts(
        model=None,
        input_tokens=0,
        output_tokens=0,
        cost_micros=0,
        unpriced_tokens=0,
        seconds=1,
        is_failed=False,
        is_stopped=True,
    )
    entries = [said(1, "first contact", Role.NOTE), said(2, "hi", Role.USER), said(3, "the user stopped it", Role.NOTE)]
    for answered in ([], [said(4, "I was say")]):
        user, answer = arrange([*entries, *answered], None, Around(facts={7: stopped}))
        assert (user.text, answer.kind, answer.facts) == ("hi", "answer", stopped)


def test_what_a_job_sent_and_noted_is_shown_once() -> None:
    numbers = range(1, 3)
    sent = [WebchatMessage(name=f"out-{no}", id=f"r{no}", at=NOON, text="Water!", is_mine=False) for no in numbers]
    noted = [said(no, "Water!", turn=None, message_id=f"r{no}") for no in numbers]
    shown = arrange(noted, None, Around(asides=sent))
    assert [(item.kind, len(item.parts)) for item in shown] == [("answer", 1), ("answer", 1)], "each is a message"
    used = [said(1, "", turn=None, calls=(CALL,)), said(2, "ok", Role.TOOL, turn=None, answers="c1")]
    (answer,) = arrange([*used, said(3, "Paid.", turn=None)], None, Around())
    assert len(answer.parts) == 2, "an imported answer with its tools is one"


def test_a_pager_stands_where_versions_part() -> None:
    entries = [said(1, "uno", Role.USER), said(2, "Said: uno")]
    again = Choice(seq=0, position=2, sessions=("v1", "v2"))
    edited = Choice(seq=0, position=2, sessions=("v1", "v2"), is_edit=True)
    for choice, kind in ((again, "answer"), (edited, "user")):
        shown = arrange(entries, None, Around(choices={0: choice}))
        assert [item.kind for item in shown if item.choice] == [kind]


def test_an_answer_that_a_message_joined_is_two_and_only_the_last_one_goes_on() -> None:
    entries = [
        said(1, "pay her", Role.USER),
        said(2, "I look.", calls=(CALL,)),
        said(3, "done", Role.TOOL, answers="c1"),
        said(4, "and him", Role.USER),
        said(5, "Both.", calls=(CALL,)),
    ]
    shown = arrange(entries, None, Around(open_turn=open_turn()))
    assert [item.kind for item in shown] == ["user", "answer", "user", "answer"]
    assert len({item.id for item in shown}) == len(shown), "a page knows them by their ids"
    assert [item.id for item in shown if item.is_running] == ["t-7"] == [shown[-1].id]
