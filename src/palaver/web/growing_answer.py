"""An answer as browsers show it while it is being written: finished blocks, and the one that grows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from markupsafe import Markup

from palaver.web.markdown import GrowingText


@dataclass(eq=False, slots=True)
class GrowingAnswer:
    session: str
    part: int
    """How often the agent has spoken before in this turn."""
    text: GrowingText = field(default_factory=GrowingText)

    def grow(self, text: str) -> Mapping[str, object]:
        """Take the text so far; return the blocks that a browser does not have yet, and after how many they come."""
        known = self.text.grow(text)
        return {
            "part": self.part,
            "after": known,
            "closed": self.text.closed[known:],
            "open": "".join(self.text.open),
        }

    @property
    def closed(self) -> int:
        return len(self.text.closed)

    @property
    def html(self) -> Markup:
        return Markup("".join((*self.text.closed, *self.text.open)))  # noqa: S704 - escaped by the renderer
