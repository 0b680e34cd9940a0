"""What our mails look like."""

from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.platforms.email.adapter import attach, message_id, recipients_of, render, subject_for
from palaver.protocols import Outbound, SendRefused
from tests.platforms.email.test_parse import options

NOW = datetime(2026, 5, 1, 9, 30, tzinfo=UTC)


def outbound(text: str = "Hello", chat: str = "ann@example.org", **more: Any) -> Outbound:
    return Outbound(platform="email", chat_id=chat, text=text, **more)


def sent(message: Outbound, subject: str = "Tea", **changed: object) -> EmailMessage:
    """As the other side reads it."""
    content = render(message, options(**changed), "own@example.net", subject, NOW).as_bytes()
    assert max(map(len, content.splitlines())) <= 998
    assert content.isascii()
    return message_from_bytes(content, policy=policy.default)  # pyright: ignore[reportReturnType]


def test_an_answer_continues_its_thread_and_no_program_answers_it() -> None:
    root, parent = f"{'r' * 200}@example.org", "p@example.org"
    mail = sent(
        outbound(chat="ann@example.org,bob@example.com", thread_id=root, reply_to=parent), name="Helper, Inc. ü"
    )
    assert str(mail["From"]) == '"Helper, Inc. ü" <helper@example.net>'
    assert (mail["To"], mail["Subject"]) == ("ann@example.org, bob@example.com", "Tea")
    assert (mail["In-Reply-To"], mail["References"]) == (f"<{parent}>", f"<{root}> <{parent}>")
    assert (mail["Message-ID"], mail["Date"]) == ("<own@example.net>", "Fri, 01 May 2026 09:30:00 +0000")
    assert (mail["Auto-Submitted"], mail["X-Auto-Response-Suppress"]) == ("auto-replied", "All")
    new = sent(outbound())
    assert ("References" in new, new["Auto-Submitted"]) == (False, "auto-generated")


def test_formatting_is_an_alternative_in_html() -> None:
    mail = sent(outbound("**2 * 3** is `6`, ü <b>"))
    plain, html = mail.get_body(("plain",)), mail.get_body(("html",))
    assert plain
    assert html
    assert plain.get_content().strip() == "**2 * 3** is `6`, ü <b>"
    assert html.get_content().strip() == "<p><strong>2 * 3</strong> is <code>6</code>, ü &lt;b&gt;</p>"
    assert sent(outbound("just words")).get_content_type() == "text/plain"


def test_no_text_can_add_a_header() -> None:
    evil = "x\r\nBcc: eve@evil.org"
    mail = sent(
        outbound(evil, thread_id=evil, reply_to="a b"), subject_for(outbound(evil, opens=evil), None), name=evil
    )
    assert "Bcc" not in mail
    assert "References" not in mail
    assert mail["Subject"] == "x Bcc: eve@evil.org"
    half = outbound("\ud800 half")
    assert sent(half, subject_for(half, "\ud800")).get_body()
    for chat in ("", "Ann", "ann@example.org\nBcc: eve@evil.org", "ann@example.org,", "a b@example.org"):
        with pytest.raises(SendRefused):
            recipients_of(outbound(chat=chat))


def test_a_subject_is_the_threads_or_tells_what_follows() -> None:
    assert subject_for(outbound(), "Tea") == "Re: Tea"
    assert subject_for(outbound(opens="Plans"), None) == "Plans"
    assert subject_for(outbound("# **Report**\n\nAll is well."), None) == "Report"
    assert subject_for(outbound("", file=Attachment(Label("plan.pdf"))), None) == "plan.pdf"
    assert subject_for(outbound(""), None) == "Message"
    assert len(subject_for(outbound("long " * 100), None)) <= 120


def test_the_same_key_gives_the_same_id() -> None:
    ids = [message_id(account, key, options()) for account, key in (("a", "1"), ("a", "1"), ("a", "2"), ("b", "1"))]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3
    assert ids[0].endswith("@example.net")


def test_a_file_has_its_name_and_type(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\0\xff")
    for media_type, shown in (("image/png", "image/png"), ("nonsense", "application/octet-stream")):
        mail = render(outbound("Here."), options(), "own@example.net", "Tea", NOW)
        attach(mail, Attachment(Label('"../ü\r\n.png'), media_type), tmp_path / "f")
        read = message_from_bytes(mail.as_bytes(), policy=policy.default)
        (part,) = read.iter_attachments()  # pyright: ignore[reportAttributeAccessIssue]
        assert (part.get_content_type(), part.get_content()) == (shown, b"\0\xff")
        assert part.get_filename() == '"../ü .png'
