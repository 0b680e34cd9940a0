"""Whose calls are accepted, where answers go, and what activities and answers mean."""

from typing import Any

import pytest

from palaver.platforms.teams.adapter import TeamsAdapter, parse, render_text
from palaver.protocols import (
    Inbound,
    Label,
    Outbound,
    PlatformRefused,
    Quote,
)
from palaver.testkit.recorder import Recorder
from tests.platforms.called import ACCOUNT, No, serve
from tests.platforms.jwts import other_key, signed
from tests.platforms.mutants import check_parsed, mutants
from tests.platforms.teams.fakes import (
    APP,
    PERSONAL,
    US,
    FakeGroup,
    FakeTeams,
    FakeThread,
    Teams,
    call,
    options_of,
    token_for,
)

TO = Outbound(platform="teams", chat_id=PERSONAL, text="hi")


async def test_an_unknown_tenant_is_something_that_a_person_must_correct() -> None:
    async with serve(Teams()) as server:
        server.trouble = No({"error": "invalid_request", "error_description": "AADSTS90002: no such tenant"}, 400)
        with pytest.raises(PlatformRefused, match="the tenant"):
            await TeamsAdapter(ACCOUNT, options_of(server.url)).check()


async def test_only_calls_for_this_service_and_channel_are_accepted() -> None:
    async with serve(Teams()) as server:
        adapter, recorder = TeamsAdapter(ACCOUNT, options_of(server.url)), Recorder()
        activity = FakeTeams(server).activity("message", 1, text="hi")
        service = activity["serviceUrl"]
        claims = {"iss": "https://api.botframework.com", "aud": APP, "serviceurl": service}
        wrong = [
            call(activity, token_for("https://evil.example/")),
            call(activity, token_for(service, aud="somebody")),
            call(activity, token_for(service, iss="https://sts.windows.net/x")),
            call(activity, f"Bearer {signed(claims, key=other_key())}"),
            call({**activity, "serviceUrl": "https://evil.example/"}, token_for(service)),
            call({**activity, "channelId": "webchat"}),
        ]
        for request in wrong:
            assert (await adapter.handle_callback(request, recorder)).status == 401
        assert not recorder.offered
        assert (await adapter.handle_callback(call(activity), recorder)).status == 200
        assert recorder.texts == ["hi"]


async def test_an_answer_goes_to_the_service_that_called() -> None:
    async with serve(Teams()) as server:
        adapter = TeamsAdapter(ACCOUNT, options_of(server.url))
        await adapter.send(TO, idempotency_key="1")
        await adapter.handle_callback(call(FakeTeams(server).activity("message", 1, text="hi")), Recorder())
        await adapter.send(TO, idempotency_key="2")
        assert [each.raw["service"] for each in server.sent] == ["default", "amer"]
        await adapter.typing(TO)
        assert server.typed == [PERSONAL]


def test_an_activity_with_anything_in_it_is_read_or_skipped() -> None:
    def read(activity: Any) -> list[Inbound]:
        found = parse(activity, ACCOUNT)
        return [found.inbound] if found else []

    mentions = [{"type": "mention", "mentioned": {"id": US, "name": "Helper"}, "text": "<at>Helper</at>"}]
    mentions += [{"type": "mention", "mentioned": {"id": "29:bob", "name": "Bob"}, "text": "<at>Bob</at>"}]
    mentions += [{"type": "quotedReply", "quotedReply": {"messageId": "7", "senderId": US, "preview": "x"}}]
    download = {"contentType": "application/vnd.microsoft.teams.file.download.info", "name": "a.txt"}
    download |= {"content": {"downloadUrl": "https://x.sharepoint.com/a", "fileType": "txt"}}
    said = FakeGroup(Teams()).activity(
        "messageUpdate",
        1,
        text="<at>Helper</at> ask <at>Bob</at>",
        entities=mentions,
        attachments=[download],
        value={"says": "x"},
        channelData={"eventType": "editMessage"},
    )
    for wrong in mutants(said):
        check_parsed("teams", lambda wrong=wrong: read(wrong))
    (found,) = read(said)
    assert (found.text, found.mentions_us, found.source.user_id_alt is not None) == ("ask @Bob", True, True)
    assert [file.handle for file in found.files] == ["https://x.sharepoint.com/a"]
    assert not read({**said, "type": "conversationUpdate"})


def received(fake: FakeTeams, **more: Any) -> Inbound:
    found = parse(fake.activity("message", 1, **more), ACCOUNT)
    assert found
    return found.inbound


def html(content: str) -> dict[str, Any]:
    return {"attachments": [{"contentType": "text/html", "content": content}]}


def test_a_mention_counts_without_its_text() -> None:
    mention = {"type": "mention", "mentioned": {"id": US, "name": "Helper"}}
    said = received(FakeGroup(Teams()), text="<at>Helper</at>&nbsp;/new", entities=[mention])
    assert (said.text, said.mentions_us) == ("/new", True)
    said = received(FakeGroup(Teams()), text="tea?", entities=[{**mention, "text": None}])
    assert (said.text, said.mentions_us) == ("tea?", True)


def test_text_is_decoded() -> None:
    said = received(FakeTeams(Teams()), text="&nbsp;/memory add salt &amp; vinegar &lt;3\n")
    assert said.text == "/memory add salt & vinegar <3"
    mention = {"type": "mention", "mentioned": {"id": "29:bob", "name": "R&D"}, "text": "<at>R&amp;D</at>"}
    assert received(FakeTeams(Teams()), text="ask <at>R&amp;D</at>", entities=[mention]).text == "ask @R&D"


@pytest.mark.parametrize("part", ["copy", "preview"])
def test_a_quoted_reply_says_what_it_answers(part: str) -> None:
    def block(author: str) -> str:
        return (
            '<blockquote itemscope="" itemtype="http://schema.skype.com/Reply" itemid="1712">\r\n'
            f'<strong itemprop="mri" itemid="{author}">Ann &amp; Bob</strong>'
            '<span itemprop="time" itemid="1712"></span>\r\n'
            f'<p itemprop="{part}">green&nbsp;<em>tea</em>?</p>\r\n</blockquote>\r\n<p>yes</p>'
        )

    said = received(FakeGroup(Teams()), text="yes", **html(block("29:bob")))
    assert (said.text, said.reply_to, said.mentions_us, said.files) == ("yes", "1712", False, ())
    assert said.quote == Quote(text="green tea?", name=Label("Ann & Bob"))
    ours = received(FakeGroup(Teams()), text="yes", **html(block(US)))
    assert ours.quote
    assert (ours.quote.is_ours, ours.mentions_us) == (True, True)


def test_a_quoted_reply_can_come_as_an_entity() -> None:
    quoted = {"messageId": "1712", "senderId": US, "senderName": "Helper", "preview": "tea?", "time": "1712"}
    text, entities = '<quoted messageId="1712"/> yes', [{"type": "quotedReply", "quotedReply": quoted}]
    said = received(FakeGroup(Teams()), text=text, entities=entities)
    assert (said.text, said.reply_to, said.mentions_us) == ("yes", "1712", True)
    assert said.quote == Quote(text="tea?", name=Label("Helper"), is_ours=True)


@pytest.mark.parametrize(
    ("text", "content"),
    [("look", '<div>look</div><attachment id="dd73"></attachment>'), ("", ""), ("", " ")],
)
def test_a_file_in_a_channel_is_named_although_bots_do_not_get_it(text: str, content: str) -> None:
    """Teams gives its address in a direct chat only."""
    (file,) = received(FakeThread(Teams()), text=text, **html(content)).files
    assert (file.handle, file.is_settled, file.problem) == (None, True, "Teams gives bots files in a direct chat only")
    assert received(FakeThread(Teams()), text="look", **html("<div>look</div>")).files == ()


@pytest.mark.parametrize(
    ("kind", "emoji"),
    [
        ("like", "👍"),
        ("yes", "👍"),
        ("yes-tone5", "👍"),
        ("no", "👎"),
        ("no-tone1", "👎"),
        ("👎", "👎"),
        ("heart", None),
    ],
)
def test_reactions_are_known_by_their_names_in_teams(kind: str, emoji: str | None) -> None:
    activity = FakeTeams(Teams()).activity("messageReaction", "f:1", replyToId="b1", reactionsAdded=[{"type": kind}])
    del activity["from"]["name"]  # Teams does not tell it here.
    found = parse(activity, ACCOUNT)
    assert (found and found.inbound.reaction and found.inbound.reaction.emoji) == emoji


def test_tables_are_aligned_code() -> None:
    """Teams shows no tables in text messages."""
    table = "| a | b |\n|---|---|\n| long | < |"
    code = "<pre><code>a    | b\n-----+--\nlong | &lt;</code></pre>"
    assert render_text(table) == code
    assert render_text("> " + table.replace("\n", "\n> ")) == f"<blockquote>{code}</blockquote>"
    assert render_text("- x\n\n  " + table.replace("\n", "\n  ")) == f"<ul><li><p>x</p>{code}</li></ul>"


def test_nothing_is_too_long_or_taken_for_html() -> None:
    assert render_text("**tea** <b>") == "<p><strong>tea</strong> &lt;b&gt;</p>"
    for text in ("&" * 16_000, "\n" * 16_000, "*a* " * 4000, "<at>all</at>" * 1300):
        shown = render_text(text)
        assert len(shown.encode()) <= 25_000
        assert "<at>" not in shown
