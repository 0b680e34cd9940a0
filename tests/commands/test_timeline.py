"""The words of a timeline."""

from datetime import UTC, datetime

import pytest

from palaver.commands.trace_steps import trace_steps
from palaver.model.turn import Delivery, Outbound, OutboxState
from palaver.store.status.trace import DeliveryTrace, Trace

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(("why", "words"), [("parked", "is waiting for approval"), ("tool", "sends with a tool")])
def test_what_is_owed_besides_answers_is_reported_in_words(why: str, words: str) -> None:
    outbound = Outbound(platform="telegram", chat_id="7", text="hello")
    delivery = Delivery(number=-1, outbound=outbound, state=OutboxState.DUE, attempts=0, due=NOON, created=NOON)
    first, *_ = trace_steps(Trace(deliveries=(DeliveryTrace(delivery=delivery, why=why),)), NOON)
    assert words in first.sentence
