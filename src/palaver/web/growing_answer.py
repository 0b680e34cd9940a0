"""An answer as browsers show it while it is being written: finished blocks, and the one that grows."""

from collections.abc import Mapping

from markupsafe import Markup

from palaver.protocols.markdown.tree import settled_length
from palaver.web.markdown import render_blocks


class GrowingAnswer:
    """The HTML of an answer while it grows. Only the last block is rendered again."""

    def __init__(self, session: str, part: int) -> None:
        self.session = session
        self.part = part
        """How often the agent has spoken before in this turn."""
        self.closed: list[str] = []
        """Blocks that nothing written later can change."""
        self.open: tuple[str, ...] = ()
        self.text = ""
        self._rest = 0
        """Where the open block begins."""

    def grow(self, text: str) -> Mapping[str, object]:
        """Take the text so far; return the blocks that a browser does not have yet, and after how many they come."""
        if not text.startswith(self.text[: self._rest]):
            self.closed, self._rest = [], 0
        known, self.text = len(self.closed), text
        rest = text[self._rest :]
        settled = settled_length(rest)
        if settled:
            self.closed += render_blocks(rest[:settled])
            self._rest += settled
        # The open block is another one each time, so it stays out of the cache.
        self.open = render_blocks.__wrapped__(rest[settled:])
        return {"part": self.part, "after": known, "closed": self.closed[known:], "open": "".join(self.open)}

    @property
    def html(self) -> Markup:
        return Markup("".join((*self.closed, *self.open)))  # noqa: S704 - escaped by the renderer
