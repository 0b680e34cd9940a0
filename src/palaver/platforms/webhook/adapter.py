"""The webhook adapter: an account is a program that calls us, one that we call, or both."""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from typing import ClassVar
from urllib.parse import urlsplit

from palaver.model.errors import BadArgument
from palaver.model.source import Trust
from palaver.model.target import Place
from palaver.model.turn import Outbound, account_text
from palaver.platforms.catalog import PLATFORMS
from palaver.platforms.webhook import render
from palaver.platforms.webhook.options import CALLER, GUIDE, WebhookOptions
from palaver.platforms.webhook.parse import Malformed, parse_call
from palaver.platforms.webhook.signature import Unsigned, key_of
from palaver.protocols.adapter import AnswerStatus, Limits, Receiver, SendRefused
from palaver.protocols.capabilities import HttpRequest, HttpResponse
from palaver.protocols.clock import Clock, SystemClock
from palaver.protocols.hooks import GatewayEvent

__all__ = ["WebhookAdapter"]

log = logging.getLogger(__name__)

_LONGEST_TEXT = 200_000
_PLATFORM = PLATFORMS["webhook"]
_JSON = {"application/json", "application/*", "*/*"}


class WebhookAdapter:
    platform = _PLATFORM
    options: ClassVar = WebhookOptions
    guide = GUIDE

    def __init__(self, account: str, options: WebhookOptions, clock: Clock | None = None) -> None:
        self.account = account
        self._options = options
        self.limits = Limits(text=_LONGEST_TEXT, repeats_safely=True, accepts_messages=options.url is not None)
        self._clock = clock or SystemClock()
        self._postman = _postman(options)

    @classmethod
    def make(cls, account: str, options: WebhookOptions) -> "WebhookAdapter":
        return cls(account, options)

    async def run(self, receiver: Receiver) -> None:
        if self._postman is not None:
            await self._postman.serve(receiver.connected)
        else:
            await receiver.connected()
            await asyncio.Event().wait()

    async def check(self) -> str:
        """What the account is for; nothing is posted for that."""
        told: list[str] = []
        if self._options.is_called:
            told.append(f"is called at /in/{_PLATFORM.name}/{self.account}, signed as {self._options.scheme}")
        if self._options.url is not None:
            told.append(f"posts to {urlsplit(self._options.url.get_secret_value()).hostname}")
        return ", ".join(told)

    # In

    @property
    def takes_callbacks(self) -> bool:
        return self._options.is_called

    async def handle_callback(self, call: HttpRequest, receiver: Receiver) -> HttpResponse:
        if not self._options.is_called or call.path:
            return _told(404, {"error": "There is nothing here."})
        if call.method != "POST":
            return HttpResponse(status=405, headers={"allow": "POST"})
        try:
            inbound = parse_call(_PLATFORM.name, self.account, self._options, call, self._clock.now())
        except Unsigned as error:
            log.warning("a call was not signed", extra={"action": "webhook.unsigned", "account": self.account})
            return _told(401, {"error": str(error)})
        except Malformed as error:
            return _told(400, {"error": str(error)})
        known = await receiver.wait_for_answer(inbound.source, 0)
        is_known = known is not None and known.refused is None
        if not is_known:
            await receiver.receive(inbound, Trust())
        waits = self._options.deliver == CALLER
        answer = await receiver.wait_for_answer(inbound.source, self._options.wait if waits else 0)
        if waits and answer and _is_said(answer) and _wants_words(call.headers.get("accept", "")):
            return HttpResponse(body=answer.text.encode("utf-8", "replace"))
        return _reply(self.account, answer, says=waits, is_known=is_known)

    def forwards_to(self) -> Sequence[Place]:
        return self._options.answers_go_to["deliver"]

    # Out

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """What goes to the account itself is posted; whoever called reads its answer in the outbox."""
        if outbound.is_news:
            body = outbound.text.encode()
        elif outbound.chat_id == self.account:
            body = render.message(outbound).encode()
        else:
            return idempotency_key
        if self._postman is None:
            raise SendRefused("the account has no url to post to")
        return await self._postman.post(body, render.message_id(idempotency_key, body), self._clock.now())

    def event_message(self, event: GatewayEvent, text: str) -> Outbound | None:
        if event.kind not in self._options.events:
            return None
        return Outbound(
            platform=_PLATFORM.name,
            account=self.account,
            chat_id=render.lane(event),
            text=render.event(event, text if self._options.content else ""),
            is_news=True,
        )


def _postman(options: WebhookOptions):  # noqa: ANN202 - what it is made of is an extra
    if options.url is None:
        return None
    try:
        from palaver.platforms.webhook.send import Postman  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise BadArgument(
            "Nothing can be posted to a url without",
            found=str(error.name),
            allowed="the extra http",
            example="pip install 'palaver[http]'",
        ) from error
    secret = options.secret.get_secret_value() if options.secret else None
    return Postman(options.url.get_secret_value(), key_of(options.scheme, secret) if secret else None)


def _is_said(answer: AnswerStatus) -> bool:
    return answer.is_settled and answer.refused is None and not answer.has_failed


def _wants_words(accept: str) -> bool:
    """Whoever takes JSON, too, gets it: it holds the id, and says what has gone wrong."""
    taken = {each.partition(";")[0].strip().lower() for each in accept.split(",")}
    return "text/plain" in taken and taken.isdisjoint(_JSON)


def _reply(account: str, answer: AnswerStatus | None, *, says: bool, is_known: bool) -> HttpResponse:
    again = {"duplicate": True} if is_known or answer is None else {}
    if answer is None:  # it came before, and nothing is left of it
        return _told(200, again)
    if answer.refused is not None:
        name = account_text(_PLATFORM.name, account)
        return _told(403, {"id": answer.id, "error": f"{name} has no grant, or is blocked: palaver grants add {name}"})
    if not (says and answer.is_settled):
        return _told(200 if is_known else 202, {"id": answer.id, **again})
    failed = {"failed": True} if answer.has_failed else {}
    return _told(200, {"id": answer.id, "answer": answer.text, **failed, **again})


def _told(status: int, body: Mapping[str, object]) -> HttpResponse:
    return HttpResponse(status=status, body=json.dumps(body).encode(), media_type="application/json")
