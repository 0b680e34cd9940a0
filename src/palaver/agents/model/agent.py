"""The model agent: answers with the models of a provider or of any compatible server."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from pydantic_ai.messages import ModelRequest, ModelResponse

from palaver.agents.model.costs import Costs
from palaver.agents.model.errors import CUT_OFF, PROVIDER_ERRORS, RejectedBlobs, to_failure
from palaver.agents.model.history import FileView
from palaver.agents.model.loop import AnswerLoop, ModelCall, ResponseCutOff, request_parameters
from palaver.agents.model.options import ModelOptions
from palaver.agents.model.providers import ModelClient, ModelClients
from palaver.agents.model.responses import text_of
from palaver.agents.model.summary import (
    SUMMARY_PROMPT,
    TITLE_PROMPT,
    parse_title,
    split_conversation,
    summary_request,
    title_request,
)
from palaver.model.errors import PalaverError
from palaver.model.session import ModelOverride
from palaver.model.turn import Usage
from palaver.protocols.agent import Event, Excerpt, GeneratedText, Request

_DEFAULT_CONTEXT_WINDOW = 16_000
"""Tokens to assume for a model of unknown size."""
_CHARACTERS_PER_TOKEN = 2
"""A cautious estimate: in some scripts a character takes more than a token."""


class ModelFailed(PalaverError):
    """The model gave no summary or title."""


@dataclass(frozen=True)
class ModelAgent:
    """Keeps no conversation: everything a turn needs comes with its request."""

    options: ModelOptions
    clients: ModelClients
    costs: Costs
    rejected: RejectedBlobs = field(default_factory=RejectedBlobs)

    @classmethod
    def of(cls, options: ModelOptions) -> "ModelAgent":
        """Make the agent. Raises InvalidInput with what to set or install."""
        costs = Costs.of(options.prices, is_custom_server=options.base_url is not None)
        return cls(options, ModelClients.of(options), costs)

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        client = self.clients.choose(request.override)
        loop = AnswerLoop(
            request=request,
            client=client,
            prompt="\n\n".join(filter(None, (self.options.instructions, request.section))),
            costs=self.costs,
            files=FileView.of(client.model.profile, request.read_file),
            rejected=self.rejected,
            rounds=self.options.rounds,
        )
        try:
            async with aclosing(loop.events()) as events:
                async for event in events:
                    yield event
        except ResponseCutOff:
            yield CUT_OFF
        except PROVIDER_ERRORS as error:
            yield to_failure(error, self.options.key)

    def models(self) -> Sequence[ModelOverride]:
        return self.clients.choices()

    def context_window(self, override: ModelOverride | None) -> int | None:
        return self.options.context_window or self.clients.choose(override).context_window

    async def summarise(self, passage: Excerpt) -> GeneratedText:
        """Summarise in pieces of half the context window."""
        client, text, usage = self.clients.choose(passage.override), "", Usage()
        window = self.context_window(passage.override) or _DEFAULT_CONTEXT_WINDOW
        for piece in split_conversation(passage.messages, window * _CHARACTERS_PER_TOKEN // 2):
            response = await self._generate(client, SUMMARY_PROMPT, summary_request(piece, text, passage.focus))
            text, usage = text_of(response).strip(), usage.plus(self.costs.usage(client.name, response.usage))
        return GeneratedText(text=text, usage=usage)

    async def title(self, passage: Excerpt) -> GeneratedText:
        client = self.clients.choose(passage.override)
        response = await self._generate(client, TITLE_PROMPT, title_request(passage.messages))
        return GeneratedText(text=parse_title(text_of(response)), usage=self.costs.usage(client.name, response.usage))

    async def close(self) -> None:
        await self.clients.close()

    async def _generate(self, client: ModelClient, prompt: str, text: str) -> ModelResponse:
        """Call the model with streaming: some providers give long answers in no other way."""
        call = ModelCall(client=client, parameters=request_parameters(prompt))
        try:
            async with aclosing(call.stream_text([ModelRequest.user_text_prompt(text)])) as pieces:
                async for _ in pieces:
                    pass
        except ResponseCutOff as error:
            raise ModelFailed(CUT_OFF.detail) from error
        except PROVIDER_ERRORS as error:
            # Without the cause: it can quote the conversation or the key.
            raise ModelFailed(to_failure(error, self.options.key).detail) from None
        return call.response
