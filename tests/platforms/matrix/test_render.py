"""Markdown becomes the HTML that Matrix allows, and nothing of it is lost or taken for markup."""

import json
import re
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.split import Unit
from palaver.model.turn import Outbound
from palaver.platforms.matrix.parse import parse_event, trust_of
from palaver.platforms.matrix.send import (
    MAX_TEXT_BYTES,
    Content,
    edit_content,
    file_content,
    message_content,
)
from palaver.protocols.markdown import to_html

ALLOWED = {
    *("a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol"),
    *("p", "pre", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}


def outbound(text: str, *, thread_id: str | None = None, reply_to: str | None = None) -> Outbound:
    return Outbound(platform="matrix", chat_id="!r:x", text=text, thread_id=thread_id, reply_to=reply_to)


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("hello", None),
        ("one\ntwo\n\nthree", None),
        ("**bold** and *it* and ~~gone~~", "<p><strong>bold</strong> and <em>it</em> and <del>gone</del></p>"),
        ("a \\* star", "<p>a * star</p>"),
        ("`x < y`", "<p><code>x &lt; y</code></p>"),
        ("```python\nx = 1\n```", '<pre><code class="language-python">x = 1</code></pre>'),
        ("# Title", "<h1>Title</h1>"),
        ("> said", "<blockquote><p>said</p></blockquote>"),
        ("- a\n- b", "<ul><li>a</li><li>b</li></ul>"),
        ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
        ("[x](https://e.org/?a=1&b=2)", '<p><a href="https://e.org/?a=1&amp;b=2">x</a></p>'),
        ("[x](gopher://e.org)", "<p>x (gopher://e.org)</p>"),
        (
            "| a | b |\n|---|---|\n| 1 | 2 |",
            "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>2</td></tr></tbody></table>",
        ),
        ("<script>alert(1)</script> **x**", "<p>&lt;script&gt;alert(1)&lt;/script&gt; <strong>x</strong></p>"),
    ],
)
def test_markdown_becomes_html_where_that_says_more(text: str, html: str | None) -> None:
    assert to_html(text) == html


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert {name for name, _ in attrs} <= {"href", "class", "start"}
        if tag not in {"br", "hr"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@given(st.text(alphabet="ab<>&\"'`*_~[]()!#|-\n 1.\\", max_size=60))
def test_no_matter_what_was_written_the_html_is_well_formed_and_has_every_word(text: str) -> None:
    html = to_html(text) or ""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert not reader.open
    assert reader.tags <= ALLOWED
    if html:
        words = re.findall(r"[ab]+", text)
        shown = unescape(html)
        assert all(word in shown for word in words)


@pytest.mark.parametrize("character", ["ä", "\n", '"', "&", "漢", "😀", "*a* "])
def test_the_longest_text_fits_into_an_event_also_when_it_is_encrypted(character: str) -> None:
    text = (character * MAX_TEXT_BYTES)[: MAX_TEXT_BYTES // Unit.UTF8.measure(character) * len(character)]
    for content in (message_content(outbound(text)), edit_content("$x", outbound(text))):
        assert len(json.dumps(content)) * 4 / 3 < 65_536 - 1500


def test_nobody_is_mentioned_and_a_thread_is_kept() -> None:
    content = message_content(outbound("hi @bob:example.org", thread_id="$root", reply_to="$two"))
    assert content["m.mentions"] == {}
    assert content["m.relates_to"] == {
        "rel_type": "m.thread",
        "event_id": "$root",
        "is_falling_back": True,
        "m.in_reply_to": {"event_id": "$two"},
    }


@pytest.mark.parametrize(
    "content",
    [
        message_content(outbound("hi")),
        edit_content("$x", outbound("hi")),
        file_content(outbound("hi"), Attachment(Label("x"), "text/plain", 3), {"url": "mxc://e/x"}),
    ],
)
def test_another_bot_of_this_kind_knows_what_we_say_as_what_a_bot_says(content: Content) -> None:
    said = {"type": "m.room.message", "event_id": "$one", "sender": "@other:x", "content": content}
    event = parse_event(said)
    assert event
    assert trust_of(event).is_bot
    assert content["msgtype"] != "m.notice"


def test_an_answer_says_to_what() -> None:
    assert message_content(outbound("hi", reply_to="$two"))["m.relates_to"] == {"m.in_reply_to": {"event_id": "$two"}}


@pytest.mark.parametrize(
    ("media_type", "kind"),
    [("image/png", "m.image"), ("audio/ogg", "m.audio"), ("video/mp4", "m.video"), ("text/plain", "m.file")],
)
def test_a_file_is_called_by_its_name_and_shown_as_what_it_is(media_type: str, kind: str) -> None:
    file = Attachment(Label("../x"), media_type, 3)
    content = file_content(outbound(""), file, {"url": "mxc://e/x"})
    assert (content["msgtype"], content["body"], content["filename"], content["url"]) == (
        kind,
        "../x",
        "../x",
        "mxc://e/x",
    )
    assert file_content(outbound("see"), file, {})["body"] == "see"
