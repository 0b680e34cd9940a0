"""An answer as a reply to the message that it answers."""

from dataclasses import replace

from palaver.platforms.feishu.adapter import FeishuAdapter
from palaver.protocols import Outbound, QuoteMode
from tests.platforms.called import ACCOUNT, No, serve
from tests.platforms.feishu.fakes import Feishu, options_of


async def test_an_answer_is_a_reply_in_a_group_and_a_plain_message_if_the_other_is_gone() -> None:
    async with serve(Feishu()) as server:
        adapter = FeishuAdapter.make(ACCOUNT, options_of(server.url))
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
