"""The guide: answers when no model is configured, shows what Palaver does, and says how to connect a model."""

from collections.abc import AsyncGenerator, Sequence

from palaver.model.turn import Usage
from palaver.model.value import value
from palaver.protocols.agent import Event, Final, Request, TextDelta, UsageReport

_WHO = "I am Palaver's guide, not a language model."


@value
class GuideAgent:
    """A small agent of rules."""

    async def answer(self, request: Request) -> AsyncGenerator[Event]:  # noqa: ARG002
        yield TextDelta(_WHO)
        yield UsageReport(Usage(model="guide"))
        yield Final(text=_WHO)

    def unpriced_models(self) -> Sequence[str]:
        """Return nothing: it is free."""
        return ()
