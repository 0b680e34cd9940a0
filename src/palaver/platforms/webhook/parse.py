"""From a call to what is said: the payload read, the template filled, the conversation chosen."""

import json
import re
import secrets
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs

from palaver.model.errors import MalformedSource
from palaver.model.label import Label
from palaver.model.reset import Cause
from palaver.model.source import CHANNEL, Labels, Source
from palaver.model.turn import Inbound
from palaver.model.value import value
from palaver.platforms.webhook.options import PER_DELIVERY, Missing, WebhookOptions
from palaver.platforms.webhook.signature import Scheme, verified
from palaver.platforms.webhook.template import MISSING, Lacking, Template, looked_up, path_of, written
from palaver.protocols.capabilities import HttpRequest

__all__ = ["Malformed", "parse_call"]

_ID = re.compile(r"[!-~]{1,200}")
_LONGEST_NAME = 200
_MOST_FIELDS = 1000
_FORM = "application/x-www-form-urlencoded"
_USUAL_ID = {Scheme.STRIPE: "id"}


class Malformed(Exception):
    """The call is from who may call, but says nothing that can be understood. The words are for the caller."""


@value(kw_only=False)
class _Reading:
    platform: str
    account: str
    options: WebhookOptions
    payload: object

    def inbound(self, delivery: str | None, now: datetime) -> Inbound:
        message = self._message(delivery)
        text = self._text()
        name = self._named(self.options.name) if self.options.name else None
        return Inbound(
            source=Source(
                platform=self.platform,
                account=self.account,
                chat_kind=CHANNEL,
                chat_id=self._chat(message),
                user_id=self.account,
                message_id=message,
            ),
            text=text,
            at=now,
            labels=Labels(user=Label(name or self.account)),
            cause=Cause.CALL,
            mentions_us=True,
            plain=True,
        )

    def _message(self, delivery: str | None) -> str:
        field = self.options.id or _USUAL_ID.get(self.options.scheme)
        if field is None and delivery is None:
            return f"call-{secrets.token_hex(12)}"
        message = self._named(field) if field else delivery
        if not message:
            lacking = f"payload has no {field}" if field else "call has no webhook-id"
            raise Malformed(f"The {lacking}, by which it would be known again.")
        if not _ID.fullmatch(message):
            raise Malformed("The id of a delivery is 1 to 200 visible ASCII characters.")
        return message

    def _chat(self, message: str) -> str:
        field = self.options.session
        if field == PER_DELIVERY:
            return f"delivery/{message}"
        name = self._named(field)
        if not name or len(name) > _LONGEST_NAME:
            raise Malformed(f"The payload has no {field} of 1 to {_LONGEST_NAME} characters to tell conversations by.")
        return f"{field}/{name}"

    def _named(self, field: str) -> str | None:
        """A text or a whole number there."""
        found = looked_up(self.payload, path_of(field))
        is_name = isinstance(found, (str, int)) and not isinstance(found, bool)
        return written(found) if found is not MISSING and is_name else None

    def _text(self) -> str:
        options = self.options
        try:
            text = Template.parse(options.text).filled(
                self.payload,
                demands=options.missing is Missing.ERROR,
                fences=options.fences,
                longest=options.longest,
            )
        except Lacking as lacking:
            raise Malformed(f"The payload has no {lacking}.") from None
        except RecursionError:
            raise Malformed("The payload is nested too deeply.") from None
        if not text:
            raise Malformed("Nothing is said by this payload: none of the fields that are asked for is there.")
        return text


def parse_call(platform: str, account: str, options: WebhookOptions, call: HttpRequest, now: datetime) -> Inbound:
    """What a call says. Raises Unsigned or Malformed."""
    secret = options.secret.get_secret_value() if options.secret else ""
    delivery = verified(options.scheme, secret, call.headers, call.body, now)
    payload = _payload(call.headers.get("content-type", ""), call.body, options.scheme)
    inbound = _Reading(platform, account, options, payload).inbound(delivery, now)
    try:
        inbound.check_ids()
    except MalformedSource as error:
        raise Malformed(f"{error}.") from error
    return inbound


def _payload(media_type: str, body: bytes, scheme: Scheme) -> object:
    if media_type.partition(";")[0].strip().lower() != _FORM:
        return _json(body)
    try:
        fields = parse_qs(
            body.decode(), keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise Malformed(f"The body is no form of at most {_MOST_FIELDS} fields.") from None
    form = {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
    # GitHub can wrap its JSON into a form of one field.
    return _json(fields["payload"][0].encode()) if scheme is Scheme.GITHUB and "payload" in fields else form


def _json(body: bytes) -> object:
    try:
        found: Any = json.loads(body.decode(), parse_constant=_refused)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, (dict, list)):
        raise Malformed("The body is no JSON object or list, in UTF-8, nor a form.")
    return found  # pyright: ignore[reportUnknownVariableType]


def _refused(word: str) -> object:
    raise ValueError(word)
