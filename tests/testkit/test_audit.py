from palaver.model.turn import Outbound
from palaver.testkit.audit import AnswerAudit, audit_answers
from palaver.testkit.chat import Chat
from palaver.testkit.platform import FakePlatform


async def played(
    said: list[str], shown: list[str], threads: list[str | None] | None = None
) -> tuple[Chat, AnswerAudit]:
    world = FakePlatform()
    chat, alice = world.group("Dev"), world.person("alice")
    for text, thread in zip(said, threads or [None] * len(said), strict=True):
        await chat.say(alice, text, thread=thread)
    for number, text in enumerate(shown):
        await world.send("bot", Outbound(platform="fake", chat_id=chat.id, text=text), str(number))
    return chat, audit_answers([chat])


async def test_all_is_well() -> None:
    assert (await played(["m1", "m2"], ["You said: m1", "You said: m2", "By the way"]))[1] == AnswerAudit()


async def test_what_went_wrong_is_told_apart() -> None:
    chat, found = await played(["m1", "m2", "m3", "m10"], ["re m3", "re m2", "re m2", "re m10"])
    one, two, three, _ = chat.said
    assert found == AnswerAudit(lost=(one,), twice=(two,), out_of_order=(three,))


async def test_threads_have_their_own_order() -> None:
    assert (await played(["m1", "m2"], ["re m2", "re m1"], threads=["a", "b"]))[1] == AnswerAudit()


async def test_what_answers_what_can_be_said() -> None:
    chat, _ = await played(["2", "3"], ["four", "nine"])
    squares = {"2": "four", "3": "nine"}
    assert audit_answers([chat], answers=lambda said, shown: squares[said.text] == shown.text) == AnswerAudit()
