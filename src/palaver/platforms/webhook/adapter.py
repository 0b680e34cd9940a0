"""The webhook adapter: an account is a program that calls us, one that we post to, or both."""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from typing import ClassVar
from urllib.parse import urlsplit

from palaver.platforms.webhook import PLATFORM
from palaver.platforms.webhook.options import CALLER, WebhookOptions
from palaver.platforms.webhook.parse import MalformedRequest, parse_request
from palaver.platforms.webhook.signature import SignatureError, decode_secret
from palaver.protocols import (
    AnswerStatus,
    EventSubscription,
    HttpRequest,
    HttpResponse,
    Limits,
    Outbound,
    Place,
    Receiver,
    SendRefused,
    SystemClock,
    Trust,
    account_text,
)
from palaver.protocols.installation import MissingPackages


def message_json(outbound: Outbound) -> str:
    """Encode a message to the account."""
    message = {"type": "message", "data": {"text": outbound.text, "account": outbound.account}}
    return json.dumps(message, separators=(",", ":"))


def message_id(idempotency_key: str, body: bytes) -> str:
    """Return an id that stays the same when posted again. It has no dot, which separates the signed parts."""
    return f"msg_{hashlib.sha256(idempotency_key.encode() + b' ' + body).hexdigest()[:32]}"


_MAX_TEXT = 200_000
_PLATFORM = PLATFORM
_JSON_TYPES = {"application/json", "application/*", "*/*"}


class WebhookAdapter:
    platform = _PLATFORM
    options: ClassVar = WebhookOptions

    def __init__(self, account: str, options: WebhookOptions) -> None:
        self.account = account
        self._options = options
        self.limits = Limits(text=_MAX_TEXT, repeats_safely=True, accepts_messages=options.takes_messages)
        self._clock = SystemClock()
        self._poster = _poster(options)

    async def run(self, receiver: Receiver) -> None:
        if self._poster is not None:
            await self._poster.serve(receiver.connected)
        else:
            await receiver.connected()
            await asyncio.Event().wait()

    async def check(self) -> str:
        """Return what the account does; nothing is posted."""
        parts: list[str] = []
        if self._options.is_called:
            parts.append(f"is called at /in/{_PLATFORM.name}/{self.account}, signed as {self._options.scheme}")
        if self._options.url is not None:
            parts.append(f"posts to {urlsplit(self._options.url.get_secret_value()).hostname}")
        return ", ".join(parts)

    # Incoming

    @property
    def takes_callbacks(self) -> bool:
        return self._options.is_called

    async def handle_callback(self, request: HttpRequest, receiver: Receiver) -> HttpResponse:
        if not self._options.is_called or request.path:
            return HttpResponse.of_json({"error": "There is nothing here."}, 404)
        if request.method != "POST":
            return HttpResponse(status=405, headers={"allow": "POST"})
        try:
            inbound = parse_request(_PLATFORM.name, self.account, self._options, request, self._clock.now())
        except SignatureError as error:
            return HttpResponse.of_json({"error": str(error)}, 401)
        except MalformedRequest as error:
            return HttpResponse.of_json({"error": str(error)}, 400)
        known = await receiver.wait_for_answer(inbound.source, 0)
        is_duplicate = known is not None and known.refused is None
        if not is_duplicate:
            await receiver.receive(inbound, Trust())
        waits = self._options.deliver == CALLER
        answer = await receiver.wait_for_answer(inbound.source, self._options.wait_seconds if waits else 0)
        has_answer = answer and answer.is_settled and answer.refused is None and not answer.has_failed
        if waits and answer and has_answer and _prefers_text(request.headers.get("accept", "")):
            return HttpResponse(body=answer.text.encode("utf-8", "replace"))
        return _response(self.account, answer, with_text=waits, is_duplicate=is_duplicate)

    def forwards_to(self) -> Sequence[Place]:
        return self._options.answers_go_to["deliver"]

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Post events and messages to the account. Answers to callers are not posted: they read them here."""
        if outbound.is_news:
            body = outbound.text.encode()
        elif outbound.chat_id == self.account:
            body = message_json(outbound).encode()
        else:
            return idempotency_key
        if self._poster is None:
            raise SendRefused("The account has no url to post to.")
        return await self._poster.post(body, message_id(idempotency_key, body), self._clock.now())

    def subscription(self) -> EventSubscription:
        return EventSubscription(
            platform=_PLATFORM.name,
            account=self.account,
            kinds=frozenset(self._options.events),
            has_text=self._options.content,
        )


def _poster(options: WebhookOptions):  # noqa: ANN202 - its module needs an extra
    if options.url is None:
        return None
    try:
        from palaver.platforms.webhook.send import Poster  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingPackages("Posting to a url needs", "http") from error
    secret = options.secret.get_secret_value() if options.secret else None
    return Poster(options.url.get_secret_value(), decode_secret(options.scheme, secret) if secret else None)


def _prefers_text(accept: str) -> bool:
    """Return whether plain text is accepted and JSON is not. JSON is better: it has the id and the error."""
    accepted = {item.partition(";")[0].strip().lower() for item in accept.split(",")}
    return "text/plain" in accepted and accepted.isdisjoint(_JSON_TYPES)


def _response(account: str, answer: AnswerStatus | None, *, with_text: bool, is_duplicate: bool) -> HttpResponse:
    duplicate = {"duplicate": True} if is_duplicate or answer is None else {}
    if answer is None:  # It came before and has been deleted since.
        return HttpResponse.of_json(duplicate)
    if answer.refused is not None:
        name = account_text(_PLATFORM.name, account)
        error = f"{name} has no grant, or is blocked. Grant access with: palaver grants add {name}"
        return HttpResponse.of_json({"id": answer.id, "error": error}, 403)
    if not (with_text and answer.is_settled):
        return HttpResponse.of_json({"id": answer.id, **duplicate}, 200 if is_duplicate else 202)
    failed = {"failed": True} if answer.has_failed else {}
    return HttpResponse.of_json({"id": answer.id, "answer": answer.text, **failed, **duplicate})
