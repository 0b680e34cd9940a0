"""LINE's signature, free replies and pushes, and what its events and answers mean."""

from dataclasses import replace
from typing import Any

from palaver.platforms.line.adapter import LineAdapter, parse, render
from palaver.protocols import (
    HttpRequest,
    Label,
    Outbound,
    QuoteMode,
)
from palaver.testkit.recorder import Recorder
from tests.platforms.called import ACCOUNT, No, serve
from tests.platforms.line.fakes import ALICE, GROUP_ID, SECRET, Line, call, event_of, options_of

TO = Outbound(platform="line", chat_id=ALICE, text="hi")


async def test_the_documented_signature_is_accepted() -> None:
    """The secret, the body and the signature of LINE's own example."""
    body = b'{"destination":"U8e742f61d673b39c7fff3cecb7536ef0","events":[]}'
    signature = "GhRKmvmHys4Pi8DxkF4+EayaH0OqtJtaZxgTD9fMDLs="
    adapter = LineAdapter(ACCOUNT, options_of(channel_secret=SECRET))
    for given, status in ((signature, 200), (signature.lower(), 401), ("", 401)):
        request = HttpRequest(method="POST", headers={"x-line-signature": given}, body=body)
        assert (await adapter.handle_callback(request, Recorder())).status == status


async def test_several_events_come_in_one_call_and_an_unreadable_one_harms_none() -> None:
    async with serve(Line()) as server:
        adapter, recorder = LineAdapter(ACCOUNT, options_of(server.url)), Recorder()
        first, last = ({"id": number, "type": "text", "text": f"number {number}"} for number in "13")
        events: list[Any] = [event_of("message", message=first), 7, {"type": "message"}, event_of("follow")]
        events += [event_of("message", message=last), event_of("message", message=last, mode="standby")]
        assert (await adapter.handle_callback(call(*events), recorder)).status == 200
        assert (await adapter.handle_callback(call(event_of("message", message={})), recorder)).status == 200
    assert recorder.texts == ["number 1", "number 3"]
    assert len(recorder.received) == 2


def test_what_people_send() -> None:
    def text_of(kind: str, **more: Any) -> str:
        found = parse(event_of("message", message={"id": "1", "type": kind, **more}), ACCOUNT)
        assert found
        return found.inbound.text

    assert text_of("sticker", keywords=["ok", "yes"]) == "[sticker ok, yes]"
    assert text_of("location", latitude=35.6, longitude=139.7, title="Tower") == "[location 35.6, 139.7 Tower]"
    assert text_of("poll") == "[content that cannot be shown here]"
    mention = {"mentionees": [{"index": 0, "length": 4, "isSelf": True}]}
    assert text_of("text", text="@\U0001f600x tea?", mention=mention) == "tea?", "LINE counts UTF-16 units"
    found = parse(event_of("unsend", group=GROUP_ID, unsend={"messageId": "7"}), ACCOUNT)
    assert found
    assert found.inbound.revision
    assert (found.inbound.source.message_id, found.inbound.revision.deleted) == ("7", True)
    unnamed = {**event_of("message", message={"id": "1", "type": "text", "text": "x"})}
    unnamed["source"] = {"type": "room", "roomId": "R1"}
    found = parse(unnamed, ACCOUNT)
    assert found
    assert (found.inbound.source.chat_id, found.inbound.source.user_id) == ("R1", None)


def test_an_edited_message_is_a_revision() -> None:
    message = {"id": "444573844083572737", "type": "text", "quoteToken": "q", "text": "at nine"}
    edits = [
        parse({**event_of("messageEdited", group=GROUP_ID, message=message), "timestamp": at}, ACCOUNT)
        for at in (1_783_400_000_000, 1_783_400_000_000, 1_783_400_060_000)
    ]
    assert all(edits)
    inbounds = [edit.inbound for edit in edits if edit]
    assert [(each.text, each.source.message_id) for each in inbounds] == 3 * [("at nine", "444573844083572737")]
    versions = [each.revision.version for each in inbounds if each.revision and not each.revision.deleted]
    assert versions[0] == versions[1] < versions[2], "they can come twice, and in the wrong order"


def test_a_picture_that_line_does_not_have_is_named() -> None:
    """Apps share such pictures from their own servers."""
    where = {
        "type": "external",
        "originalContentUrl": "https://example.com/o.jpg",
        "previewImageUrl": "https://example.com/p",
    }
    found = parse(event_of("message", message={"id": "7", "type": "image", "contentProvider": where}), ACCOUNT)
    assert found
    (file,) = found.inbound.files
    assert (file.name, file.handle, file.media_type) == (Label("image.jpg"), None, "image/jpeg")
    assert "https://example.com/o.jpg" in file.problem


def test_line_shows_plain_text() -> None:
    shown = render(replace(TO, text="**hot** [tea](https://example.org)"))
    assert shown["text"] == "hot tea (https://example.org)"


async def test_the_first_answer_is_a_free_reply_and_the_others_are_pushes_shown_once() -> None:
    async with serve(Line()) as server:
        adapter = LineAdapter(ACCOUNT, options_of(server.url))
        for token in ("r1", "expired"):
            server.reply_tokens["r1"] = ALICE
            message = {"id": token, "type": "text", "text": "hi"}
            await adapter.handle_callback(call(event_of("message", message=message, replyToken=token)), Recorder())
            await adapter.send(TO, idempotency_key=f"{token}-1")
        receipts = {await adapter.send(TO, idempotency_key="same") for _ in range(2)}
        assert [each.raw["how"] for each in server.sent] == ["reply", "push", "push"]
        assert len(receipts) == 1
        await adapter.typing(TO)
        await adapter.typing(Outbound(platform="line", chat_id=GROUP_ID, text=""))
        assert server.typed == [ALICE], "LINE shows it only alone with somebody"


async def test_an_answer_quotes_the_message_in_a_group_or_where_it_is_wanted() -> None:
    async with serve(Line()) as server:
        adapter = LineAdapter(ACCOUNT, options_of(server.url))
        for number, group in (("1", ""), ("2", GROUP_ID)):
            message = {"id": number, "type": "text", "text": "hi", "quoteToken": f"q{number}"}
            await adapter.handle_callback(call(event_of("message", group=group, message=message)), Recorder())
        alone, there = replace(TO, reply_to="1"), replace(TO, chat_id=GROUP_ID, reply_to="2")
        for number, answer in enumerate(
            (
                alone,
                replace(alone, quotes=QuoteMode.ALWAYS),
                there,
                replace(there, quotes=QuoteMode.NEVER),
                replace(there, reply_to="from before a restart"),
            )
        ):
            await adapter.send(answer, idempotency_key=str(number))
        assert [each.raw.get("quoteToken") for each in server.sent] == [None, "q1", "q2", None, None]
        message = {"id": "3", "type": "text", "text": "hi", "quoteToken": "unsent"}
        await adapter.handle_callback(call(event_of("message", group=GROUP_ID, message=message)), Recorder())
        server.refuses.append(No({"message": "The request body has 1 error(s)"}, 400))
        await adapter.send(replace(there, reply_to="3", text="in any case"), idempotency_key="unsent")
    assert (server.sent[-1].text, server.sent[-1].raw.get("quoteToken")) == ("in any case", None)
