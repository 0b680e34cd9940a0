"""The suite for an adapter that renders Markdown."""

from palaver.testkit.conformance import AdapterConformance

__all__ = ["RenderedConformance"]


class RenderedConformance(AdapterConformance):
    """Markdown is rendered, so it is shown as something else, and the renderer has no carriage returns."""

    hostile = tuple(text for text in AdapterConformance.hostile if not text.startswith("*bold*") and "\r" not in text)
