"""What becomes of a mail: who sent it, to which conversation it belongs, and which words are new."""

from datetime import UTC, datetime
from email.message import EmailMessage

import pytest

from palaver.model.label import Label
from palaver.model.transcript import Quote
from palaver.model.turn import Inbound
from palaver.platforms.email.body import html_to_text, split_history, unflow
from palaver.platforms.email.mailbox import EmailOptions, RawMail
from palaver.platforms.email.parse import NewMail, Skipped, parse
from palaver.protocols import parse_or_skip

NOW = datetime(2026, 5, 2, tzinfo=UTC)
OWN = "palaver." + "0" * 40 + "@example.net"
RESULTS = "Authentication-Results: mx.example.net; dmarc=pass header.from=example.org\n"
USUAL = {
    "From": "Ann <Ann@Example.org>",
    "To": "helper@example.net",
    "Subject": "Tea",
    "Message-ID": "<1@example.org>",
    "Date": "Fri, 01 May 2026 09:30:00 +0200",
}


def options(**changed: object) -> EmailOptions:
    usual = {"address": "helper@example.net", "password": "p", "imap_host": "i", "smtp_host": "s"}
    return EmailOptions.model_validate({**usual, "auth_server": "mx.example.net", **changed})


def raw(body: str = "Hello", results: str = RESULTS, **headers: str) -> bytes:
    """A mail with these headers, `_` for `-`; an empty one is left out."""
    given = {**USUAL, **{name.replace("_", "-"): text for name, text in headers.items()}}
    lines = "".join(f"{name}: {text}\n" for name, text in given.items() if text)
    return f"{results}{lines}\n{body}".encode()


def parsed(content: bytes, **changed: object) -> NewMail | Skipped | None:
    mail = RawMail(content=content, size=len(content))
    return parse_or_skip("email", lambda: parse(mail, options(**changed), "main", "7.1", NOW))


def read(content: bytes, **changed: object) -> Inbound:
    found = parsed(content, **changed)
    assert isinstance(found, NewMail), found
    return found.inbound


def skipped(content: bytes, **changed: object) -> str:
    found = parsed(content, **changed)
    assert isinstance(found, Skipped)
    return found.reason


def test_a_mail_to_us_alone_is_a_direct_chat_with_a_thread() -> None:
    inbound = read(raw())
    source = inbound.source
    assert (source.chat_kind, source.chat_id, source.user_id) == ("dm", "ann@example.org", "ann@example.org")
    assert (source.thread_id, source.message_id) == ("1@example.org", "1@example.org")
    assert (inbound.labels.user, inbound.labels.topic) == (Label("Ann"), Label("Tea"))
    assert inbound.at == datetime(2026, 5, 1, 7, 30, tzinfo=UTC)
    assert (inbound.text, inbound.mentions_us, inbound.quote) == ("Hello", True, None)


WRONG = "=?utf-8?b?A?="
"""It is not base64."""


def test_what_is_encoded_wrongly_is_shown_as_it_is() -> None:
    mail = raw(Subject=f"Re: {WRONG}", From=f"{WRONG} <ann@example.org>", To=f"{WRONG} <helper@example.net>")
    inbound = read(mail)
    assert (inbound.source.user_id, inbound.mentions_us, inbound.text) == ("ann@example.org", True, "Hello")
    assert inbound.labels.topic == Label(WRONG)
    (file,) = read(raw(Content_Type=f'application/x-tea; name="{WRONG}"')).files
    assert file.name == Label("file")
    for charset in ("undefined", "idna", '"a\x00b"', "nobody-8"):
        assert read(raw(Content_Type=f"text/plain; charset={charset}")).text == "Hello", charset
    for date in ("Thu, 01 Jan 99999999999 00:00:00 +0000", f"Thu, 01 Jan 1970 00:00:00 +{'9' * 20}", "soon"):
        assert read(raw(Date=date)).at == NOW, date


def test_a_mail_that_hides_a_wrong_encoding_is_skipped() -> None:
    assert parsed(raw(From='"=\\?utf-8?b?A?=" <ann@example.org>')) is None


def test_answers_belong_to_the_thread_of_the_first_mail() -> None:
    for headers in (
        {"References": f"<1@example.org> <{OWN}>", "In_Reply_To": f"<{OWN}>"},
        {"References": f"<1@example.org>\n <2@example.org>\n\t<{OWN}>"},
    ):
        inbound = read(raw(Message_ID="<3@example.org>", Subject="Re: AW: Re[2]: Tea", **headers))
        assert (inbound.source.thread_id, inbound.reply_to) == ("1@example.org", OWN)
        assert inbound.labels.topic == Label("Tea")
    assert read(raw(In_Reply_To="<0@example.org>")).source.thread_id == "0@example.org"


def test_a_mail_to_several_is_a_group_of_everybody_but_us() -> None:
    group = {"To": "Bob <bob@example.com>, cy@example.org", "Cc": "HELPER@example.net"}
    inbound = read(raw(**group))
    assert (inbound.source.chat_kind, inbound.source.chat_id) == (
        "group",
        "ann@example.org,bob@example.com,cy@example.org",
    )
    assert not inbound.mentions_us, "a copy is for information"
    assert read(raw(**{**group, "In_Reply_To": f"<{OWN}>"})).mentions_us
    assert read(
        raw(**{**group, "Cc": "", "To": "bob@example.com, us@example.net"}), aliases=["us@example.net"]
    ).mentions_us


def test_a_mail_without_text_says_its_subject_and_one_without_an_id_gets_one() -> None:
    assert read(raw("\n")).text == "Tea"
    ids = {read(raw(body, Message_ID="")).source.message_id for body in ("a", "a", "b")}
    assert len(ids) == 2
    assert None not in ids


def test_programs_bounces_and_lists_are_not_answered() -> None:
    for headers, reason in (
        ({"Auto_Submitted": "auto-replied (vacation)"}, "automatic"),
        ({"Auto_Submitted": "auto-generated; x=1"}, "automatic"),
        ({"X_Auto_Response_Suppress": "OOF, AutoReply"}, "automatic"),
        ({"List_Id": "Tea lovers <tea.example.org>"}, "from a mailing list"),
        ({"list_unsubscribe": "<https://example.org/>"}, "from a mailing list"),
        *(({name: "yes"}, "automatic") for name in ("X_Autoreply", "X_Autorespond", "X_Autorespond_To")),
        *(({"Precedence": precedence}, "bulk mail") for precedence in ("Bulk", "list", "junk", "auto_reply")),
        ({"Return_Path": "<>"}, "a bounce or report"),
        ({"Content_Type": 'multipart/report; report-type=delivery-status; boundary="b"'}, "a bounce or report"),
        *(
            ({"From": f"{robot}@example.org"}, "from a robot")
            for robot in ("MAILER-DAEMON", "postmaster", "bounces", "do-not-reply", "noreply", "no_reply")
        ),
        ({"From": "helper@example.net"}, "our own"),
    ):
        assert skipped(raw(**headers)) == reason, headers
    assert read(raw(Auto_Submitted="no", Return_Path="<ann@example.org>", Precedence="normal"))


def results(*headers: str) -> str:
    return "".join(f"{header}\n" for header in headers)


OURS = "Authentication-Results: mx.example.net"


def test_only_what_our_own_server_found_out_verifies_a_sender() -> None:
    for good in (
        results(f"{OURS}; dkim=pass (2048-bit key; a=(b); spf=fail) header.d=example.org header.b=x"),
        results(f"{OURS} 1;\n\tspf=fail smtp.mailfrom=x.org;\n\tdkim=pass header.i=@example.org"),
        results("Received: by lmtp", f"{OURS}; spf=pass", f"{OURS}; dmarc=pass header.from=Example.org", "Received: x"),
        results(f"{OURS}; auth=pass smtp.auth=ann@example.org"),
    ):
        assert read(raw(results=good)), good
    for bad in (
        "",
        results(f"{OURS}; none"),
        results(f"{OURS}; spf=pass smtp.mailfrom=ann@example.org"),
        results(f"{OURS}; dkim=fail header.d=example.org"),
        results(f"{OURS}; auth=none smtp.auth=ann@example.org"),
        results(f"{OURS}; dkim=pass header.d=evil.org"),
        results(f"{OURS}; dkim=pass header.d=ample.org"),
        results(f"{OURS}; dkim=pass"),
        results(f"{OURS}; dkim=pass header.d=example.org; dmarc=fail header.from=example.org"),
        results(f"{OURS}; dmarc=pass header.from=evil.org"),
        results(f"{OURS}; dmarc=fail (dmarc=pass header.from=example.org)"),
        results(f'{OURS}; x=y reason="; dmarc=pass header.from=example.org"'),
        results(f"{OURS}; dmarc=pass header.from=evil.org header.from=example.org"),
        results(f"{OURS}; auth=pass smtp.auth=eve@example.org"),
        results("Authentication-Results: mx.evil.org; dmarc=pass header.from=example.org"),
        results("Authentication-Results: mx.example.net.evil.org; dmarc=pass header.from=example.org"),
        results(f"{OURS}; dmarc=fail", "Received: x", f"{OURS}; dmarc=pass header.from=example.org"),
        results(f"{OURS}; spf=pass", "Received: x", f"{OURS}; dmarc=pass header.from=example.org"),
    ):
        assert skipped(raw(results=bad)) == "from an unverified sender", bad


def test_an_unverified_sender_can_be_a_stranger_who_shares_nothing_with_the_real_one() -> None:
    real, spoofed = read(raw()).source, read(raw(results=""), unverified="stranger").source
    assert (spoofed.user_id, spoofed.chat_id) == ("unverified:ann@example.org", "unverified:ann@example.org")
    assert not {real.user_id, real.chat_id} & {spoofed.user_id, spoofed.chat_id}


@pytest.mark.parametrize(
    "sender",
    [
        "",
        "ann@example.org, eve@evil.org",
        "ann@example.org\nFrom: eve@evil.org",
        "Ann",
        '"ann@example.org" <>',
        "=?utf-8?q?ann=40example.org?=",
        "ann@example.org <eve@evil.org",
        "<ann@example.org>eve@evil.org",
        "ann@exämple.org",
    ],
)
def test_a_sender_who_is_not_exactly_one_is_nobody(sender: str) -> None:
    found = parsed(raw(From=sender))
    assert found is None or isinstance(found, Skipped)


def test_what_is_new_is_told_from_what_is_quoted() -> None:
    wrote = "On Fri, 1 May 2026 at 09:30, Helper <helper@example.net>\nwrote:"
    for text, new, history in (
        (f"Yes, please.\n\n{wrote}\n\n> Tea?\n> > Or coffee?\n", "Yes, please.", "Tea?\nOr coffee?"),
        ("Danke!\n-- \nAnn\n\nAm 1.5.2026 schrieb Helper:\n> Tee?", "Danke!", "Tee?"),
        (f"{wrote}\n> Tea?\n\nYes.\n-- \nAnn", "Yes.", "Tea?"),
        ("ok\n\n-----Original Message-----\nFrom: Helper\nTea?", "ok", "Tea?"),
        ("ok\n________\nVon: Helper\nGesendet: Freitag\nAn: Ann\nBetreff: Tee\n\nTee?", "ok", "Tee?"),
        ("好的\n\n发件人： Helper\n发送时间： 2026年5月1日\n收件人： Ann\n主题： 茶\n\n喝茶吗？", "好的", "喝茶吗？"),
        ("好的\n\n------------------ 原始邮件 ------------------\n发件人: Helper\n喝茶吗？", "好的", "喝茶吗？"),
        ("好的\n\nHelper <helper@example.net> 于2026年5月1日周五 09:30写道：\n> 喝茶吗？", "好的", "喝茶吗？"),
        ("Tak\n\nOd: Helper\nData: piątek\nDo: Ann\nTemat: Herbata\n\nHerbaty?", "Tak", "Herbaty?"),
        ("Tak\n\npt., 1 maj 2026 o 09:30 Helper <h@example.net> napisał(a):\n> Herbaty?", "Tak", "Herbaty?"),
        ("Да\n\nОт: Helper\nДата: пятница\nКому: Ann\nТема: Чай\n\nЧаю?", "Да", "Чаю?"),
        ("Да\nпт, 1 мая 2026 г. в 09:30, Helper <h@example.net>:\n> Чаю?", "Да", "Чаю?"),
        ("Ja\n\n-----Oprindelig meddelelse-----\nFra: Helper\nSendt: fredag\nTil: Ann\n\nTe?", "Ja", "Te?"),
        ('Ja\n\nD. 01/05/2026 09.30 skrev "Helper" <h@example.net>:\n\n    Te?\n    Nu?', "Ja", "Te?\n    Nu?"),
        ("I disagree. On 5 May my boss said:\n> Tea!", "I disagree. On 5 May my boss said:", "Tea!"),
        ("Look here. He said on 5 May 2026,\nat 9:30:\n> Tea!", "Look here. He said on 5 May 2026,\nat 9:30:", "Tea!"),
    ):
        found = split_history(text)
        assert (found.new, found.history[-len(history) :]) == (new, history)
    for kept in (
        f"{wrote}\n> Tea?\nYes.\n> Milk?\nNo.",
        "> only a quote",
        "look\n---------- Forwarded message ---------\nFrom: Bob\nDate: Friday\nSubject: Plan\nTo: Ann\n\nx",
        "From: here\nto there",
        "От: меня\nк вам",
        "I wrote to ann@example.org on 5 May 2026:\nTea?",
        "1 > 0",
    ):
        assert split_history(kept) == (kept, "")


def test_the_history_is_kept_as_a_quote() -> None:
    answer = raw("Yes.\n\nOn 1 May, helper@example.net wrote:\n> Tea?", In_Reply_To=f"<{OWN}>")
    inbound = read(answer)
    assert inbound.text == "Yes."
    assert inbound.quote == Quote(text="On 1 May, helper@example.net wrote:\nTea?", is_ours=True)
    assert read(raw("> Tea?\n\nsee", Subject="Fwd: Tea")).text == "> Tea?\n\nsee", "what is forwarded is not history"


def test_a_plain_text_is_preferred_and_html_becomes_text() -> None:
    mail = EmailMessage()
    mail.set_content("plain")
    mail.add_alternative("<p>HTML</p>", subtype="html")
    assert read(_whole(mail)).text == "plain"
    html = (
        "<head><title>x</title><style>p{}</style></head><!-- no --><p>Hello <b>you</b> &amp; me,</p>"
        '<span style="display: none">obey</span><ul><li>one<li>two</ul>see <a href="https://example.org/">this</a><br>'
        "bye<blockquote>Tea?<br>Now?</blockquote><pre>a\n  b</pre>"
    )
    assert read(raw(html, Content_Type="text/html")).text == (
        "Hello you & me,\n- one\n- two\nsee this (https://example.org/)\nbye\n> Tea?\n> Now?\na\n  b"
    )
    cells = "<tr><th>Name </th>\n<th>Sum<tr><td><p>Tea</p></td><td></td><td><p>3 €</p></td></tr>"
    layout = "<table><tr><td>Hi<p>Ann</td><td><table><tr><td>you</table></td></tr></table>"
    for shown, words in (
        (f"a<table>{cells}</table>b", "a\nName | Sum\nTea | 3 €\nb"),
        (layout, "Hi\nAnn\nyou"),
        ("<ol><li>one<ul><li>x</ul><li>two</ol><ol start='7'><li>seven</ol>", "1. one\n- x\n2. two\n7. seven"),
    ):
        assert html_to_text(shown) == words


def _whole(mail: EmailMessage) -> bytes:
    """With the usual headers."""
    body = mail.as_bytes().partition(b"\n\n")[2]
    return raw("", Content_Type=str(mail["Content-Type"]), MIME_Version="1.0") + body


def test_lines_that_were_broken_are_joined() -> None:
    flowed = "a long \nline\n-- \nAnn\n> one \n> two\n>> x \n> y"
    assert unflow(flowed, joins_words=False) == "a long line\n-- \nAnn\n> one two\n>> x \n> y"
    assert unflow("won \nder", joins_words=True) == "wonder"
    assert read(raw("a long \nline", Content_Type="text/plain; format=flowed")).text == "a long line"


def test_files_are_named_and_an_attached_mail_does_not_speak_for_its_sender() -> None:
    mail = EmailMessage()
    mail.set_content("look")
    mail.add_attachment(b"GIF8", maintype="image", subtype="gif", filename="../ü.gif")
    inner = EmailMessage()
    inner["Subject"] = "inner"
    inner.set_content("obey me")
    mail.add_attachment(inner)
    mail.add_attachment("a,b", subtype="csv", disposition="attachment")
    mail.add_attachment("no body", disposition="attachment")
    mail.add_attachment("<p>no body</p>", subtype="html", disposition="inline", filename="a.html")
    inbound = read(_whole(mail))
    assert inbound.text == "look"
    assert [(file.name, file.media_type, file.handle) for file in inbound.files] == [
        (Label("../ü.gif"), "image/gif", "7.1.0"),
        (Label("mail.eml"), "message/rfc822", "7.1.1"),
        (Label("file"), "text/csv", "7.1.2"),
        (Label("file"), "text/plain", "7.1.3"),
        (Label("a.html"), "text/html", "7.1.4"),
    ]


def test_hostile_mails_are_read_or_skipped_in_good_time() -> None:
    """Nothing here may raise: it would come again and block everything behind it."""
    nested = "".join(f"Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n" for n in range(2_000))
    for content in (
        raw(nested, Content_Type="multipart/mixed; boundary=x"),
        raw("x", Content_Type="text/plain; charset=no-such-charset"),
        raw("x", Content_Type="text/plain; charset=undefined"),
        raw("=?=", Content_Transfer_Encoding="quoted-printable"),
        raw("%%%", Content_Transfer_Encoding="base64"),
        raw(Date="Fri, 99 Foo 99999 99:99:99 +9999"),
        raw(Date="Sat, 01 Jan 0001 00:00:00 +2300"),
        raw(Subject="=?utf-8?b?////?= =?nope?q?x?="),
        raw(References="<" * 50_000),
        raw(results=f"{OURS}; " + "(" * 50_000),
        raw("<a " * 30_000, Content_Type="text/html"),
        raw("<td><p>" * 30_000, Content_Type="text/html"),
        raw("<" * 100_000, Content_Type="text/html"),
        raw("> " * 50_000 + "\n" + ">\n" * 50_000),
        raw("\r\r\r"),
        b"",
        b"\0\xff\n\n\xff",
        bytes(range(256)) * 20,
    ):
        found = parsed(content)
        assert found is None or isinstance(found, NewMail | Skipped)
    assert html_to_text("<blockquote>" * 1000 + "x").endswith("> x")


def test_a_long_text_is_cut_and_a_date_in_the_future_is_now() -> None:
    inbound = read(raw("a" * 200_010, Date="Fri, 01 May 2099 09:30:00 +0200"))
    assert inbound.text.endswith("a\n[the mail goes on for 10 more characters]")
    assert inbound.at == NOW
