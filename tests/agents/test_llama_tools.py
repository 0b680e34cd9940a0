"""What a small model decides about a message becomes a call, or talk."""

import json

from palaver.agents.llama_tools import choose_call, is_fired_job, without_markers
from palaver.model.prompt import SCHEDULE_JOB


def chosen(reminder: str, text: str = "remind me in 5 minutes to stretch") -> object:
    """What is called if the model chooses a reminder, and then says this."""
    said = iter((" remind", reminder))
    request = {"messages": [{"role": "user", "text": text}], "tools": [{"name": SCHEDULE_JOB}]}
    call = choose_call(request, lambda _prompt, _grammar: next(said))
    return call and json.loads(call.arguments)


def test_a_reminder_that_was_cut_off_is_none() -> None:
    whole = " remind\nwhen: 5 minutes\nprompt: Stretch.\n"
    assert chosen(whole) == {"when": "5 minutes", "prompt": "Stretch."}
    assert chosen(whole.removesuffix(".\n")) is None
    assert chosen(" chat") is None
    assert chosen(whole, text="") is None


def test_a_message_without_text_is_no_request_and_a_prompt_keeps_its_lines() -> None:
    request = {"messages": [{"role": "user"}], "tools": [{"name": SCHEDULE_JOB}]}
    assert choose_call(request, lambda _prompt, _grammar: " remind") is None
    assert not is_fired_job([{"role": "tool"}])
    assert without_markers("⟦note: job 1 runs now⟧ one\n- two") == "one\n- two"
