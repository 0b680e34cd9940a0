"""Markdown for adapters: one parser, and renderers to HTML, to spans beside the text, and to marks within it."""

from palaver.protocols.markdown.html import to_html
from palaver.protocols.markdown.marks import Marks, to_marks
from palaver.protocols.markdown.spans import Layout, Rendered, Span, is_web_link, to_spans
from palaver.protocols.markdown.tree import Style

__all__ = ["Layout", "Marks", "Rendered", "Span", "Style", "is_web_link", "to_html", "to_marks", "to_spans"]
