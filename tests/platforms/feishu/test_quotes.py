"""An answer as a reply to the message that it answers, and reactions to it."""

from dataclasses import dataclass, field, replace

import pytest
from aiohttp import web

from palaver.platforms.feishu.adapter import FeishuAdapter
from palaver.protocols import Outbound, PlatformDown, QuoteMode
from palaver.testkit.recorder import Recorder
from tests.platforms.called import ACCOUNT, No, serve
from tests.platforms.feishu.fakes import ALICE, UNION, Feishu, call, event_of, options_of


async def test_an_answer_is_a_reply_in_a_group_and_a_plain_message_if_the_other_is_gone() -> None:
    async with serve(Feishu()) as server:
        adapter = FeishuAdapter(ACCOUNT, options_of(server.url))
        answer = Outbound(platform="feishu", chat_id="oc_group", text="yes", reply_to="om_asked")
        ways = [
            answer,
            replace(answer, quotes=QuoteMode.NEVER),
            replace(answer, chat_id="ou_alice"),
            replace(answer, chat_id="ou_alice", quotes=QuoteMode.ALWAYS),
        ]
        for number, way in enumerate(ways):
            await adapter.send(way, idempotency_key=str(number))
        server.refuses.append(No({"code": 230011, "msg": "The message was withdrawn."}))
        await adapter.send(answer, idempotency_key="gone")
    assert server.quoted == ["om_asked", "", "", "om_asked", ""]


@dataclass
class Troubled(Feishu):
    answers: list[No] = field(default_factory=list[No])
    """How the next questions about a message are refused."""

    async def api(self, method: str, path: str, request: web.Request) -> object:
        if method == "GET" and "/im/v1/messages/" in path and self.answers:
            raise self.answers.pop(0)
        return await super().api(method, path, request)


async def test_a_reaction_comes_again_if_its_chat_cannot_be_asked_for() -> None:
    async with serve(Troubled()) as server:
        adapter, receiver = FeishuAdapter(ACCOUNT, options_of(server.url)), Recorder()
        sent = await adapter.send(Outbound(platform="feishu", chat_id="oc_group", text="ok?"), idempotency_key="1")
        who = {"open_id": ALICE, "union_id": UNION}
        event = {"message_id": sent, "operator_type": "user", "user_id": who, "action_time": "1609073151345"}
        thumb = call(event_of("im.message.reaction.created_v1", {**event, "reaction_type": {"emoji_type": "THUMBSUP"}}))
        server.answers = [No({}, 503), No({"code": 99991672, "msg": "no permission"})]
        with pytest.raises(PlatformDown):
            await adapter.handle_callback(thumb, receiver)
        await adapter.handle_callback(thumb, receiver)
        assert not receiver.received, "without the permission there are none"
        await adapter.handle_callback(thumb, receiver)
    assert [each.source.chat_id for each in receiver.received] == ["oc_group"]
