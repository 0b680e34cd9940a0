"""Our Markdown as Slack's mrkdwn: escaped no matter what comes, and never longer than Slack takes."""

import re

from hypothesis import given
from hypothesis import strategies as st

from palaver.platforms.slack.parse import MAX_TEXT, message, render
from palaver.protocols import Choice, Outbound
from tests.platforms.markdown_texts import MARKUP

_WRITTEN = re.compile(r"<(@[UW][A-Z0-9]+|https?://[^<>|\s]+\|[^<>]*)>")


def test_markdown_becomes_mrkdwn() -> None:
    for text, shown in (
        ("plain\ntext", "plain\ntext"),
        ("*a* _b_ **c** ~~d~~", "_a_ _b_ *c* ~d~"),
        ("**a *b***", "*a _b_*"),
        ("# Head\n\ntext", "*Head*\n\ntext"),
        ("`a < b && c`", "`a &lt; b &amp;&amp; c`"),
        ("```py\nif a < b:\n```", "```\nif a &lt; b:\n```"),
        ("[a](https://x.org/?a=1&b=2)", "<https://x.org/?a=1&amp;b=2|a>"),
        ("[a > b](https://x.org/|)", "<https://x.org/%7C|a &gt; b>"),
        ("[a](javascript:x)", "[a](javascript:x)"),
        ("> quoted\n> twice", "> quoted\n> twice"),
        ("- one\n- two", "• one\n• two"),
        ("a < b & c > d", "a &lt; b &amp; c &gt; d"),
        ("&lt;b&gt;", "&amp;lt;b&amp;gt;"),
    ):
        assert render(text) == shown


def test_a_person_can_be_mentioned_but_never_everybody() -> None:
    assert render("Ask <@U024BE7LH>, please") == "Ask <@U024BE7LH>, please"
    assert render("**<@W1234>**!") == "*<@W1234>*!"
    for text in ("<!channel>", "<!here|now>", "<!subteam^S123>", "<#C123|dev>", "<@everyone>", "<@u1>"):
        assert render(text) == text.replace("<", "&lt;").replace(">", "&gt;")
    assert render("`<@U024BE7LH>`") == "`&lt;@U024BE7LH&gt;`", "code is shown as it is"


def test_a_text_of_escapes_is_shown_within_the_limit() -> None:
    assert len(render("<" * 3500)) <= MAX_TEXT
    assert "‹" in render("<" * 3500)
    assert render("word " * 1000) == ("word " * 800)
    assert render("") == "…"


@given(st.lists(MARKUP, max_size=30).map("".join))
def test_whatever_comes_is_escaped_markup(text: str) -> None:
    shown = render(text)
    assert shown.strip()
    assert len(shown) <= MAX_TEXT
    rest = re.sub(r"^(?:• |\d+\. |   |> ?)+", "", _WRITTEN.sub("", shown), flags=re.MULTILINE)
    assert "<" not in rest
    assert not re.search(r"&(?!amp;|lt;|gt;)", rest)


def test_choices_are_buttons_unless_the_question_is_too_long_for_them() -> None:
    choices = (Choice("Approve " * 20, "/approve 7"), Choice("Deny", "/deny 7"))
    asked = message(Outbound(platform="slack", chat_id="C1", text="May I **write**?", choices=choices))
    section, actions = asked["blocks"]
    assert section["text"] == {"type": "mrkdwn", "text": "May I *write*?", "verbatim": True}
    assert [(each["value"], len(each["text"]["text"]) <= 75) for each in actions["elements"]] == [
        ("/approve 7", True),
        ("/deny 7", True),
    ]
    assert message(Outbound(platform="slack", chat_id="C1", text="x" * 3001, choices=choices))["blocks"] == []
    assert message(Outbound(platform="slack", chat_id="C1", text="x"))["blocks"] == []
