"""Markdown for adapters: a parser, and renderers to HTML, to marks in the text, to spans beside it or to plain text."""

from palaver.protocols.markdown.html import to_html
from palaver.protocols.markdown.marks import Marks, to_marks
from palaver.protocols.markdown.spans import Layout, Rendered, Span, is_web_link, to_plain, to_spans
from palaver.protocols.markdown.tree import Style

__all__ = ["Layout", "Marks", "Rendered", "Span", "Style", "is_web_link", "to_html", "to_marks", "to_plain", "to_spans"]
