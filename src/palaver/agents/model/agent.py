"""The model agent: models of a provider, or of any server that speaks as one does."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from pydantic_ai.messages import ModelRequest, ModelResponse

from palaver.agents.model.costs import Costs
from palaver.agents.model.errors import CUT_OFF, PROVIDER_ERRORS, Refusals, failure_of
from palaver.agents.model.history import Sight
from palaver.agents.model.loop import Answer, Asking, CutOff, parameters
from palaver.agents.model.options import Wanted
from palaver.agents.model.providers import Line, Lines
from palaver.agents.model.responses import text_of
from palaver.agents.model.summary import SUMMARY, TITLE, pieces, summary_request, title_of, title_request
from palaver.model.errors import PalaverError
from palaver.model.session import ModelOverride
from palaver.model.turn import Usage
from palaver.protocols.agent import Event, Excerpt, GeneratedText, Request

__all__ = [
    "ModelAgent",
    "ModelFailed",
]

_UNKNOWN_WINDOW = 16_000
"""So many tokens every model takes that is worth asking."""
_CHARACTERS_PER_TOKEN = 2
"""A careful guess: in some scripts a character is more than a token."""


class ModelFailed(PalaverError):
    """No summary or title came of asking the model."""


@dataclass(frozen=True)
class ModelAgent:
    """Holds no conversation: what a turn needs comes with its request."""

    wanted: Wanted
    lines: Lines
    costs: Costs
    refusals: Refusals = field(default_factory=Refusals)

    @classmethod
    def of(cls, wanted: Wanted) -> "ModelAgent":
        """Raises InvalidInput, saying what to set or to install."""
        costs = Costs.of(wanted.prices, is_foreign=wanted.base_url is not None)
        return cls(wanted, Lines.of(wanted), costs)

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        line = self.lines.to(request.override)
        answer = Answer(
            request=request,
            line=line,
            prompt="\n\n".join(filter(None, (self.wanted.instructions, request.section))),
            costs=self.costs,
            sight=Sight.of(line.model.profile, request.read_file),
            refusals=self.refusals,
            rounds=self.wanted.rounds,
        )
        try:
            async with aclosing(answer.events()) as events:
                async for event in events:
                    yield event
        except CutOff:
            yield CUT_OFF
        except PROVIDER_ERRORS as error:
            yield failure_of(error, self.wanted.key)

    def models(self) -> Sequence[ModelOverride]:
        return self.lines.choices()

    def context_window(self, override: ModelOverride | None) -> int | None:
        return self.wanted.context_window or self.lines.to(override).context_window

    async def summarise(self, passage: Excerpt) -> GeneratedText:
        """Piece by piece, where it is more than half of what the model takes."""
        line, text, usage = self.lines.to(passage.override), "", Usage()
        window = self.context_window(passage.override) or _UNKNOWN_WINDOW
        for piece in pieces(passage.messages, window * _CHARACTERS_PER_TOKEN // 2):
            response = await self._ask(line, SUMMARY, summary_request(piece, text, passage.focus))
            text, usage = text_of(response).strip(), usage.plus(self.costs.usage(line.name, response.usage))
        return GeneratedText(text=text, usage=usage)

    async def title(self, passage: Excerpt) -> GeneratedText:
        line = self.lines.to(passage.override)
        response = await self._ask(line, TITLE, title_request(passage.messages))
        return GeneratedText(text=title_of(text_of(response)), usage=self.costs.usage(line.name, response.usage))

    async def close(self) -> None:
        await self.lines.close()

    async def _ask(self, line: Line, prompt: str, words: str) -> ModelResponse:
        """Heard as answers are: some providers give long answers in no other way."""
        asking = Asking(line=line, parameters=parameters(prompt))
        try:
            async with aclosing(asking.hear([ModelRequest.user_text_prompt(words)])) as hearing:
                async for _ in hearing:
                    pass
        except CutOff as error:
            raise ModelFailed(CUT_OFF.detail) from error
        except PROVIDER_ERRORS as error:
            # Without what caused it: that may quote the conversation, or the key.
            raise ModelFailed(failure_of(error, self.wanted.key).detail) from None
        return asking.response
