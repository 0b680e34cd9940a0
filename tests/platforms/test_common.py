"""What all adapters use: errors of a client library, callbacks, options, files and the menu."""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from palaver.protocols import (
    Attachment,
    ClientErrors,
    HttpRequest,
    Inbound,
    Label,
    MenuCommand,
    Outbound,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    Source,
    TargetGone,
    Trust,
    after_name,
    answer_error,
    check_secret,
    check_url,
    file_to_send,
    fit_menu,
    is_secret,
    is_signed,
    parse_or_skip,
    parse_retry_after,
    read_ahead,
    split_names,
    take_json,
)
from palaver.protocols.pending import PendingAnswers
from tests.engine.gateway import until


class Answered(Exception):
    def __init__(self, status: int) -> None:
        super().__init__("words with a token")
        self.status = status


def explain(error: Exception, *, sending: bool) -> PlatformError | None:
    if not isinstance(error, Answered):
        return None
    return answer_error("Pigeon", error.status, sending=sending, fix="Get another ring.", gone=(404,))


ERRORS = ClientErrors(
    title="Pigeon",
    raised=(Answered, OSError),
    unsent=(ConnectionRefusedError,),
    explain=explain,
    hint="Is the loft open?",
)


def test_each_error_of_a_library_becomes_the_one_that_decides_what_follows() -> None:
    for error, of_request, of_send in (
        (Answered(429), PlatformBusy, PlatformBusy),
        (Answered(401), PlatformRefused, PlatformRefused),
        (Answered(404), TargetGone, TargetGone),
        (Answered(400), SendRefused, SendRefused),
        (Answered(408), PlatformDown, SendUnclear),
        (Answered(520), PlatformDown, SendUnclear),
        (ConnectionRefusedError("a token"), PlatformDown, PlatformDown),
        (ConnectionResetError("a token"), PlatformDown, SendUnclear),
    ):
        for translate, meant in ((ERRORS.requests, of_request), (ERRORS.sends, of_send)):
            with pytest.raises(PlatformError) as raised, translate():
                raise error
            assert type(raised.value) is meant, error
            assert "token" not in str(raised.value)


def test_an_error_is_known_by_its_cause_and_others_stay_what_they_are() -> None:
    def fail() -> None:
        raise OSError("send") from ConnectionRefusedError()

    with pytest.raises(PlatformDown, match=r"Pigeon: ConnectionRefusedError\. Is the loft open\?"), ERRORS.sends():
        fail()
    with pytest.raises(KeyError), ERRORS.sends():
        raise KeyError


def test_a_platform_says_how_long_to_wait() -> None:
    for status in (429, 503):
        busy = answer_error("Pigeon", status, sending=True, after=parse_retry_after("7"))
        assert isinstance(busy, PlatformBusy)
        assert busy.after == 7
    assert isinstance(answer_error("Pigeon", 401, sending=True), PlatformRefused), "not a refusal of one message"
    assert parse_retry_after("9" * 30) == 3600
    assert [parse_retry_after(header) for header in ("", "-1", "soon", "٣")] == [None] * 4


async def test_a_callback_is_read_only_if_it_is_authentic_and_an_object() -> None:
    taken: list[Mapping[str, Any]] = []

    async def take(update: Mapping[str, Any]) -> None:
        taken.append(update)

    for body, is_authentic, status in (
        (b'{"a": 1}', False, 401),
        (b"[1]", True, 400),
        (b"{", True, 400),
        (b"[" * 100_000, True, 400),
        (b'{"a": 1}', True, 200),
    ):
        request = HttpRequest(method="POST", body=body)
        assert (await take_json(request, take, is_authentic=is_authentic)).status == status
    assert taken == [{"a": 1}]


def test_a_signature_fits_its_body_and_its_secret() -> None:
    known = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert is_signed(b"Hello, World!", "It's a Secret to Everybody", known)
    assert is_signed(b"Hello, World!", "It's a Secret to Everybody", known.removeprefix("sha256="))
    assert not is_signed(b"Hello, World?", "It's a Secret to Everybody", known)
    assert not is_signed(b"Hello, World!", "It's a secret to everybody", known)
    assert not is_signed(b"Hello, World!", "It's a Secret to Everybody", "grün \ud800")
    assert not is_secret("", "")
    assert not is_signed(b"x", "", hmac.new(b"", b"x", "sha256").hexdigest())


def test_a_message_that_could_not_be_stored_is_skipped() -> None:
    wrong: Any = {"text": 5}
    said = Inbound(source=Source(platform="pigeon"), text="hi", at=datetime(2026, 5, 1, tzinfo=UTC))
    wrongs = (replace(said, **wrong), replace(said, files=(Attachment(Label("a"), size=-1),)))
    forms: list[Callable[[Inbound], object]] = [
        lambda each: each,
        lambda each: [said, each],
        lambda each: (each, Trust()),
    ]
    for form in forms:
        assert parse_or_skip("pigeon", lambda form=form: form(said)) == form(said)
        assert [parse_or_skip("pigeon", lambda form=form, each=each: form(each)) for each in wrongs] == [None, None]


def test_what_is_unreadable_is_skipped_and_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    assert parse_or_skip("pigeon", lambda: json.loads('{"said": "hi"}')["said"]) == "hi"
    for unreadable in ("{private", '{"private": 1}', "[]", "3"):
        assert parse_or_skip("pigeon", lambda text=unreadable: json.loads(text)["said"]) is None
    assert "private" not in caplog.text
    assert {vars(record)["action"] for record in caplog.records} == {"pigeon.unreadable"}


def test_our_name_in_front_of_a_text_is_removed() -> None:
    for text, rest in (
        ("<@42> what time?", "what time?"),
        ("@Helper: hi", "hi"),
        ("@helper,\nhi", "hi"),
        ("@helpers hi", None),
        ("hi @helper", None),
    ):
        assert after_name(text, ("<@42>", "@helper")) == rest


def test_a_url_loses_its_last_slash() -> None:
    check = check_url("a URL, like https://example.org")
    assert check("https://example.org/x/") == "https://example.org/x"
    for text in ("example.org", "ftp://example.org", "https://x y", "https://example.org?x"):
        with pytest.raises(ValueError, match="a URL, like"):
            check(text)


async def test_a_request_gets_its_own_answer_and_fails_with_the_connection() -> None:
    pending = PendingAnswers[int, str]()
    with pending.expect(1) as first, pending.expect(2) as second:
        pending.settle(1, "one")
        pending.settle(1, "again")
        pending.settle(3, "nobody asked")
        pending.fail("The connection was lost.")
        assert await first == "one"
        with pytest.raises(SendUnclear, match="lost"):
            await second
    pending.settle(1, "late")


def test_a_secret_has_the_form_that_it_has_at_its_platform() -> None:
    check = check_secret("xoxb-[0-9]+", "a token that begins with xoxb-")
    assert check(SecretStr("xoxb-12")) == SecretStr("xoxb-12")
    for text in ("", "12", "xoxb-12 "):
        with pytest.raises(ValueError, match="begins with xoxb-"):
            check(SecretStr(text))


def test_a_list_of_names_can_be_written_with_commas() -> None:
    assert split_names("#a, #b,,") == ["#a", "#b"]
    assert split_names(["#a,b"]) == ["#a,b"]


def test_a_file_is_sent_if_there_is_one_that_is_small_enough(tmp_path: Path) -> None:
    content = tmp_path / "content"
    content.write_bytes(b"words")
    file = Attachment(Label("a.txt"), "text/plain", 5)
    message = Outbound(platform="pigeon", chat_id="1", text="", file=file)
    assert file_to_send(message, content) is file_to_send(message, content, 5) is file
    with pytest.raises(SendRefused, match="at most 4 bytes, not 5 bytes"):
        file_to_send(message, content, 4)
    with pytest.raises(SendRefused, match="no file"):
        file_to_send(Outbound(platform="pigeon", chat_id="1", text=""), content)


def test_the_menu_has_what_the_platform_can_show() -> None:
    commands = [MenuCommand(name=name, help=words) for name, words in (("new", "start\nanew"), ("ü", "x"), ("b", ""))]
    shown = fit_menu([*commands, *commands], name="[a-z]{1,32}", max_help=6, max_commands=3)
    assert [(each.name, each.help) for each in shown] == [("new", "start…"), ("b", "b"), ("new", "start…")]


async def test_what_is_read_ahead_is_taken_in_order_and_what_either_side_raises_is_raised() -> None:
    taken: list[int] = []

    async def numbers(end: Exception | None = None) -> AsyncIterator[int]:
        for number in range(3):
            yield number
        if end:
            raise end

    async def take(number: int) -> None:
        await asyncio.sleep(0)
        taken.append(number)

    async def fail(number: int) -> None:
        raise PlatformRefused(str(number))

    await read_ahead(numbers(), take, finish_within=5)
    with pytest.raises(PlatformDown, match="cut"):
        await read_ahead(numbers(PlatformDown("cut")), take, finish_within=5)
    assert taken == [0, 1, 2, 0, 1, 2]
    with pytest.raises(PlatformRefused, match="0"):
        await read_ahead(numbers(), fail, finish_within=5)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_stopped_reader_takes_the_rest_only_if_it_would_not_come_again() -> None:
    for seconds, wanted in ((0.0, [0]), (5.0, [0, 1, 2])):
        taken, go = list[int](), asyncio.Event()

        async def numbers() -> AsyncIterator[int]:
            for number in range(3):
                yield number
            await asyncio.Event().wait()

        async def take(number: int, taken: list[int] = taken, go: asyncio.Event = go) -> None:
            taken.append(number)
            await go.wait()

        reading = asyncio.create_task(read_ahead(numbers(), take, finish_within=seconds))
        await until(lambda taken=taken: bool(taken))
        reading.cancel()
        await asyncio.sleep(0)
        if seconds:
            go.set()
        await asyncio.wait({reading})
        assert (reading.cancelled(), taken) == (True, wanted)
