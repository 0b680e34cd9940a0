"""What Mattermost's events and answers mean, what is read after a break, and what stops nothing."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from palaver.platforms.mattermost import adapter
from palaver.platforms.mattermost.adapter import MattermostAdapter, render
from palaver.platforms.mattermost.parse import (
    Change,
    Post,
    Us,
    changes_since,
    is_mentioned,
    parse,
    read_frame,
    read_posts,
)
from palaver.protocols import (
    Inbound,
    Outbound,
    PlatformDown,
    PlatformRefused,
    parse_or_skip,
)
from palaver.testkit.driver import run_adapter
from tests.platforms.called import ACCOUNT, serve
from tests.platforms.mattermost.fakes import ALICE, CHANNELS, OPEN, US, FakeChannel, Mattermost, options_of
from tests.platforms.mutants import check_parsed, mutants

TO = Outbound(platform="mattermost", chat_id=OPEN, text="hi")
NOW = datetime(2026, 5, 1, tzinfo=UTC)
POST = {
    "id": "p1",
    "create_at": 1_700_000_000_000,
    "update_at": 1_700_000_000_500,
    "edit_at": 1_700_000_000_500,
    "delete_at": 0,
    "user_id": ALICE,
    "channel_id": OPEN,
    "root_id": "p0",
    "message": "@helper tea?",
    "type": "",
    "props": {"from_bot": "true"},
    "file_ids": ["f1", "f2"],
    "metadata": {"files": [{"id": "f1", "name": "a.png", "mime_type": "image/png", "size": 7}]},
}


def test_a_post_with_anything_in_it_is_read_or_skipped() -> None:
    def read(post: Any, channel: Any, name: Any) -> list[Inbound]:
        found = parse(Post(post, Change.EDITED, channel, name), Us(ACCOUNT, US, "helper"), NOW)
        return [found] if found else []

    for wrong in mutants({"post": POST, "channel": CHANNELS[OPEN], "name": "@al"}):
        if set(wrong) == {"post", "channel", "name"}:
            check_parsed("mattermost", lambda wrong=wrong: read(wrong["post"], wrong["channel"], wrong["name"]))
    (found,) = read(POST, CHANNELS[OPEN], None)
    assert [(file.name.plain(), file.media_type, file.size) for file in found.files] == [
        ("a.png", "image/png", 7),
        ("file", "application/octet-stream", None),
    ]
    strange = {**POST, "metadata": {"files": [{"id": "f1", "mime_type": ";", "size": "1 MB"}]}}
    (found,) = parse_or_skip("mattermost", lambda: read(strange, CHANNELS[OPEN], None)) or [None]
    assert found
    assert [(file.media_type, file.size) for file in found.files] == [("application/octet-stream", None)] * 2
    for raw in ("", "[]", "7", '{"event": 1}', '{"seq": "x", "event": "posted"}', b"\xff", "[" * 100_000):
        assert parse_or_skip("mattermost", lambda raw=raw: read_frame(raw)) is None


def test_who_is_mentioned() -> None:
    for text in ("@helper", "hi @Helper!", "(@helper), you?", "thanks @helper."):
        assert is_mentioned(text, "helper"), text
    for text in ("@helper2", "@helper-2", "@helper.b", "mail@helper", "helper"):
        assert not is_mentioned(text, "helper"), text


def test_what_happened_while_we_were_away() -> None:
    since = 1_700_000_000_000
    long_ago, just_now = since - 60_000, since - 5

    def change(**times: int) -> list[Change]:
        return changes_since({"create_at": long_ago, "edit_at": 0, "delete_at": 0, **times}, since)

    new = since + 1
    assert change(create_at=new) == [Change.POSTED]
    assert change(create_at=new, edit_at=new + 1) == [Change.POSTED], "nobody saw it before the edit"
    assert change(edit_at=new) == [Change.EDITED]
    assert change(delete_at=new) == [Change.DELETED]
    assert change(create_at=new, delete_at=new + 1) == []
    assert change(edit_at=long_ago) == [], "somebody only reacted to it"
    assert change(create_at=just_now) == [Change.POSTED], "another one may have overtaken it"
    assert change(create_at=just_now, edit_at=new) == [Change.POSTED, Change.EDITED]
    assert change(create_at=just_now, delete_at=new) == [Change.DELETED]


def test_nobody_notifies_a_whole_channel() -> None:
    shown = render(Outbound(platform="mattermost", chat_id=OPEN, text="@all @channel @Here @alice @allison"))
    assert shown["message"] == "@\u200ball @\u200bchannel @\u200bHere @alice @allison"


async def test_events_that_were_left_out_are_read_again_and_unreadable_ones_harm_none() -> None:
    async with serve(Mattermost()) as server:
        fake = FakeChannel(server)
        async with run_adapter(fake) as (_, recorder):
            await fake.say("one")
            await recorder.has(1)
            odd: list[Any] = ["{", "null", json.dumps({"seq": 1}), json.dumps({"seq_reply": 9, "error": {}})]
            for line in server.lines:
                for raw in odd:
                    await line.send_str(raw)
            await server.tell("posted", {"user_id": ALICE})
            await server.tell("typing", {})
            await server.tell("posted", {**POST, "id": "x1", "type": "system_join_channel"})
            await server.tell("posted", {**POST, "id": "x2", "channel_id": "elsewhere"})
            await fake.say("two")
            await recorder.has(2)
            server.events.append({"event": "posted", "seq": len(server.events)})  # never sent
            server.write(ALICE, channel_id=OPEN, message="three")
            await fake.say("four")
            await recorder.has(4)
    assert recorder.texts == ["one", "two", "three", "four"]
    assert not any(trust.is_bot for trust in recorder.trusts)


async def test_a_post_that_was_overtaken_before_a_crash_is_read() -> None:
    async with serve(Mattermost()) as server:
        fake = FakeChannel(server)
        async with run_adapter(fake) as (_, recorder):
            await fake.say("one")
            await recorder.has(1)
            server.write(ALICE, channel_id=OPEN, message="overtaken")  # its event never comes
            await fake.say("newest")
            await recorder.has(2)
            await server.forget()
            await recorder.has(3)
    assert recorder.texts == ["one", "newest", "overtaken"]


def test_posts_that_are_none_hide_no_other() -> None:
    good = {"id": "b", "create_at": 1}
    posts = {"a": 7, "b": good, "c": None, "d": {"id": 4}}
    assert read_posts({"order": ["a", "b", "c", "d", "e"], "posts": posts}) == [good]


async def test_a_long_absence_loses_no_post(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server lists a thousand changed posts, and says nothing of the others."""
    monkeypatch.setattr(adapter, "_MANY", 10)
    monkeypatch.setattr(adapter, "_PAGE", 7)
    async with serve(Mattermost(most_listed=20)) as server:
        fake = FakeChannel(server)
        async with run_adapter(fake) as (_, recorder):
            await fake.say("before")
            await recorder.has(1)
            at = server.now()
            for number in range(50):  # several in a millisecond, across the ends of pages, too
                at = at if number % 3 else server.now()
                server.write(ALICE, channel_id=OPEN, message=f"{number}", create_at=at, update_at=at)
            await server.forget()
            await recorder.has(51)
    assert recorder.texts == ["before", *(f"{number}" for number in range(50))]


async def test_a_reaction_of_another_bot_is_a_bots() -> None:
    async with serve(Mattermost()) as server:
        fake = FakeChannel(server)
        async with run_adapter(fake) as (_, recorder):
            server.bots.add(ALICE)
            await fake.react("p1", "👎")
            await recorder.has(1)
    assert [trust.is_bot for trust in recorder.trusts] == [True]


async def test_a_reaction_of_somebody_unknown_can_be_a_bots(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> object:
        raise PlatformDown("no connection")

    monkeypatch.setattr(MattermostAdapter, "_fetch_human", fail)
    async with serve(Mattermost()) as server:
        fake = FakeChannel(server)
        async with run_adapter(fake) as (_, recorder):
            await fake.react("p1", "👍")
            await recorder.has(1)
    assert [trust.is_bot for trust in recorder.trusts] == [True]


async def test_a_token_that_is_rejected_says_what_to_do() -> None:
    async with serve(Mattermost()) as server:
        adapter = MattermostAdapter(ACCOUNT, options_of(server.url))
        server.trouble = server.wrong
        with pytest.raises(PlatformRefused, match="access token"):
            await adapter.check()
