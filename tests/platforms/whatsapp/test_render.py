"""What goes out: WhatsApp's marks, addresses, buttons, files and templates."""

from dataclasses import replace

import pytest

from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.turn import Choice, Outbound, QuoteMode
from palaver.platforms.whatsapp.render import MAX_TEXT, media_of, render, render_file, render_template, render_text
from palaver.protocols.adapter import SendRefused
from tests.platforms.whatsapp.fakes import ALICE, GROUP_ID


def to(chat_id: str = ALICE, text: str = "hi", **more: object) -> Outbound:
    return Outbound(platform="whatsapp", chat_id=chat_id, text=text, **more)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**bold**, *it*, ~~no~~ and `code`", "*bold*, _it_, ~no~ and `code`"),
        ("# Tea\n\n- green\n- black", "*Tea*\n\n- green\n- black"),
        ("```py\nx = 1\n```", "```\nx = 1\n```"),
        ("[here](https://example.org)", "here (https://example.org)"),
        ("> said", "> said"),
        ("snake_case and 2 * 3", "snake_case and 2 * 3"),
    ],
)
def test_markdown_gets_the_marks_of_whatsapp(text: str, shown: str) -> None:
    assert render_text(text) == shown


def test_a_text_that_gets_too_long_is_sent_as_written() -> None:
    table = "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 300 + f"| {'x' * 900} | 2 |\n"
    assert len(table) <= MAX_TEXT
    assert len(render_text(table)) <= MAX_TEXT
    lines = "**" + "a\n" * 1500 + "a**"
    assert render_text(lines) == lines, "each line would get marks of its own"


def test_each_kind_of_chat_has_its_address() -> None:
    number, hidden, group = render(to()), render(to("US.1349ab")), render(to(GROUP_ID))
    assert (number["to"], number["recipient_type"]) == (ALICE, "individual")
    assert (hidden["recipient"], "to" in hidden) == ("US.1349ab", False)
    assert (group["to"], group["recipient_type"]) == (GROUP_ID, "group")
    assert number["text"] == {"body": "hi", "preview_url": False}


def test_an_answer_quotes_in_groups_and_elsewhere_if_wanted() -> None:
    answer = to(reply_to="wamid.1")
    assert "context" not in render(answer)
    assert render(replace(answer, quotes=QuoteMode.ALWAYS))["context"] == {"message_id": "wamid.1"}
    assert render(to(GROUP_ID, reply_to="wamid.1"))["context"] == {"message_id": "wamid.1"}


def test_buttons_are_shown_if_all_of_them_can_be() -> None:
    two = (Choice("Approve it once for all", "/approve 7"), Choice("Deny", "/deny 7"))
    shown = render(to(choices=two))["interactive"]
    assert [each["reply"]["id"] for each in shown["action"]["buttons"]] == ["/approve 7", "/deny 7"]
    assert all(len(each["reply"]["title"]) <= 20 for each in shown["action"]["buttons"])
    for other in (to(choices=two * 2), to(GROUP_ID, choices=two), to(text="a" * 1025, choices=two)):
        assert render(other)["type"] == "text"


def test_a_template_has_the_text_on_one_line() -> None:
    made = render_template(to(text="one\n\ttwo     three " + "x" * 2000), "news", "de")["template"]
    (body,) = made["components"]
    (parameter,) = body["parameters"]
    assert (made["name"], made["language"]) == ("news", {"code": "de"})
    assert parameter["text"].startswith("one two three x")
    assert len(parameter["text"]) == 900
    assert parameter["text"].endswith("…")


@pytest.mark.parametrize(
    ("media_type", "size", "sent"),
    [
        ("image/png", 5_000_000, ("image", "image/png")),
        ("image/png", 5_000_001, ("document", "image/png")),
        ("video/mp4", 1, ("video", "video/mp4")),
        ("audio/ogg", 1, ("audio", "audio/ogg")),
        ("application/pdf", 1, ("document", "application/pdf")),
        ("text/csv", 1, ("document", "text/plain")),
        ("application/json", 1, ("document", "text/plain")),
    ],
)
def test_a_file_goes_out_as_what_it_is(media_type: str, size: int, sent: tuple[str, str]) -> None:
    assert media_of(Attachment(Label("x"), media_type), size) == sent


def test_a_file_that_whatsapp_does_not_take_is_refused() -> None:
    with pytest.raises(SendRefused, match="application/zip"):
        media_of(Attachment(Label("x"), "application/zip"), 1)


def test_a_caption_goes_with_the_file_and_a_voice_message_with_words_is_a_document() -> None:
    assert media_of(Attachment(Label("x"), "audio/ogg"), 1, has_text=True) == ("document", "audio/ogg")
    sent = render_file(to(text="**see**"), "document", "7", "a.pdf")
    assert sent["document"] == {"id": "7", "caption": "*see*", "filename": "a.pdf"}
    assert render_file(to(text=""), "image", "7", "a.png")["image"] == {"id": "7"}
