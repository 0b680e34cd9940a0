"""Markdown as the chat shows it: what it can, and that nothing in it becomes a tag or an attribute."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from palaver.web.growing_answer import GrowingAnswer
from palaver.web.markdown import render, render_blocks
from tests.web.hostile import HOSTILE_MARKDOWN

TAGS = {
    *("p", "br", "h3", "h4", "h5", "h6", "strong", "em", "del", "code", "pre", "div", "span", "button", "a", "sup"),
    *("ul", "ol", "li", "input", "blockquote", "hr", "table", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {
    *("class", "href", "target", "rel", "type", "start", "disabled", "checked", "tabindex", "role", "aria-label"),
    "data-copy-code",
}


class Inspector(HTMLParser):
    """Collects what a browser would see beside text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.open = 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name == "href"]
        self.open += tag not in {"br", "hr", "input"}

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self.open -= 1


def check(text: str) -> None:
    seen = Inspector(render(text))
    assert seen.tags <= TAGS, text
    assert seen.attributes <= ATTRIBUTES, text
    assert all(link.lower().startswith(("https://", "http://", "mailto:")) for link in seen.links), text
    assert seen.open == 0, text


def test_only_the_block_that_is_too_deep_stays_plain() -> None:
    for mark in ("> ", "- "):
        shown = render(f"**one**\n\n{mark * 20}deep\n\n## two")
        assert shown.startswith("<p><strong>one</strong></p>"), mark
        assert shown.endswith("<h4>two</h4>"), mark
    shown = render(f"**one**\n\n{'> ' * 40}deep\n\n- a\n  {'- ' * 25}x\n\n## two")
    assert shown.count("<p>&gt; &gt;") == shown.count("<p>- a<br>") == 1
    assert shown.endswith("<h4>two</h4>")


def test_hostile_text_stays_text() -> None:
    for text in HOSTILE_MARKDOWN:
        check(text)
        check(f"- > {text}\n\n{text}")


ALPHABET = st.sampled_from(
    [
        *("# ", "*", "**", "`", "```\n", "\n", "\n\n", "- ", "1. ", "> ", "| a | b |\n", "|---|---|\n", "[x](", ")"),
        *("<b>", "a", "word ", "https://a.org", "[^1]", "[^1]: ", "    ", "---\n", "~~", "\\", "&amp;", "[ ] ", '"'),
    ]
)


@given(st.lists(ALPHABET, max_size=40).map("".join))
def test_anything_is_safe_and_grows_into_what_it_is_as_a_whole(text: str) -> None:
    check(text)
    growing = GrowingAnswer("s", 0)
    for end in (*range(0, len(text), 3), len(text)):
        growing.grow(text[:end])
    assert (*growing.closed, *growing.open) == render_blocks(text)


def test_what_agents_write_is_rendered() -> None:
    page = render(
        "## Hi\n\n**b** ~~s~~ `c`\n\n- [x] done\n\n```py\nx = 1\n```\n\na[^1]\n\n[^1]: note\n\nsee https://a.org/b."
    )
    for part in (
        "<h4>Hi</h4>",
        "<strong>b</strong> <del>s</del> <code>c</code>",
        '<li class="task"><input type="checkbox" disabled checked aria-label="done"> done</li>',
        "<span>py</span>",
        '<span class="mi">1</span>',
        "a<sup>1</sup>",
        '<p class="footnote"><sup>1</sup> note</p>',
        '<a href="https://a.org/b" target="_blank" rel="noopener noreferrer nofollow">https://a.org/b</a>.',
    ):
        assert part in page
    for address, after in (
        ("https://a.org/Foo_(bar)", ""),
        ("https://a.org/Foo_(bar)/x[1]", ")."),
        ("https://a.org/b", "))!"),
        ("https://a.org/b", "]]"),
    ):
        words = address.replace("_", "\\_")
        assert f'<a href="{address}"' in (shown := render(f"(see {words}{after}"))
        assert f">{address}</a>{after}<" in shown
    assert "<a" not in render("https://. http://)")
    long = render("para\n\n" * 20_000)
    assert long.count("<p>para</p>") == 20_000, "a long text is rendered in parts"
