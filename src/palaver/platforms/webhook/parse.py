"""Turn a webhook request into a message: verify it, read the payload, fill the template, choose the conversation."""

import json
import re
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs

from palaver.model.turn import Cause
from palaver.platforms.webhook.options import (
    MISSING,
    PER_DELIVERY,
    FieldMissing,
    Missing,
    Template,
    WebhookOptions,
    look_up,
    parse_path,
    to_text,
)
from palaver.platforms.webhook.signature import Scheme, verify
from palaver.protocols import CHANNEL, HttpRequest, Inbound, Label, Labels, MalformedSource, Source, value

_DELIVERY_ID = re.compile(r"[!-~]{1,200}")
_MAX_CONVERSATION_NAME = 200
_MAX_FORM_FIELDS = 1000
_SECRET_HEADER = re.compile("authorization|signature|token|secret|api-?key|cookie")
"""Headers that prove who calls: no template can show them."""
_FORM = "application/x-www-form-urlencoded"
_DEFAULT_ID_FIELD = {Scheme.STRIPE: "id"}


class MalformedRequest(Exception):
    """The request is authentic but makes no message. The text is for the caller."""


def parse_request(platform: str, account: str, options: WebhookOptions, request: HttpRequest, now: datetime) -> Inbound:
    """Return the message that a request makes. Raises SignatureError or MalformedRequest."""
    secret = options.secret.get_secret_value() if options.secret else ""
    delivery = verify(options.scheme, secret, request.headers, request.body, now)
    content = _read_body(request.headers.get("content-type", ""), request.body, options.scheme)
    headers = {name: text for name, text in request.headers.items() if not _SECRET_HEADER.search(name)}
    payload = _Payload(options, content, headers)
    message_id = payload.message_id(delivery)
    text = payload.text()
    name = payload.name(options.name) if options.name else None
    inbound = Inbound(
        source=Source(
            platform=platform,
            account=account,
            chat_kind=CHANNEL,
            chat_id=payload.chat_id(message_id),
            user_id=account,
            message_id=message_id,
        ),
        text=text,
        at=now,
        labels=Labels(user=Label(name or account)),
        cause=Cause.CALL,
        mentions_us=True,
        plain=True,
        request_key=message_id,
    )
    try:
        inbound.check_ids()
    except MalformedSource as error:
        raise MalformedRequest(str(error)) from error
    return inbound


@value(kw_only=False)
class _Payload:
    options: WebhookOptions
    content: object
    headers: Mapping[str, str]

    def message_id(self, delivery: str | None) -> str:
        field = self.options.id or _DEFAULT_ID_FIELD.get(self.options.scheme)
        if field is None and delivery is None:
            return f"call-{secrets.token_hex(12)}"
        message_id = self.name(field) if field else delivery
        if not message_id:
            missing = f"Add {field} to the payload" if field else "Add a webhook-id header"
            raise MalformedRequest(f"{missing}: without an id a repeated delivery cannot be recognised.")
        if not _DELIVERY_ID.fullmatch(message_id):
            raise MalformedRequest("Use a delivery id of 1 to 200 visible ASCII characters.")
        return message_id

    def chat_id(self, message_id: str) -> str:
        field = self.options.session
        if field == PER_DELIVERY:
            return f"delivery/{message_id}"
        name = self.name(field)
        if not name or len(name) > _MAX_CONVERSATION_NAME:
            raise MalformedRequest(
                f"Add {field} to the payload, with 1 to {_MAX_CONVERSATION_NAME} characters: it names the conversation."
            )
        return f"{field}/{name}"

    def name(self, field: str) -> str | None:
        """Return the text or whole number in a field."""
        found = look_up(self.content, parse_path(field), self.headers)
        is_name = found is not MISSING and isinstance(found, (str, int)) and not isinstance(found, bool)
        return to_text(found) if is_name else None

    def text(self) -> str:
        options = self.options
        try:
            text = Template.parse(options.text).fill(
                self.content,
                required=options.missing is Missing.ERROR,
                fences=options.fences,
                max_length=options.longest,
                headers=self.headers,
            )
        except FieldMissing as missing:
            raise MalformedRequest(f"The payload has no {missing}.") from None
        except RecursionError:
            raise MalformedRequest("The payload is nested too deeply.") from None
        if not text:
            raise MalformedRequest("The message is empty: the payload has none of the fields in the template.")
        return text


def _read_body(media_type: str, body: bytes, scheme: Scheme) -> object:
    if media_type.partition(";")[0].strip().lower() != _FORM:
        return _read_json(body)
    try:
        fields = parse_qs(
            body.decode(), keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=_MAX_FORM_FIELDS
        )
    except ValueError:
        raise MalformedRequest(f"The body is not a form of at most {_MAX_FORM_FIELDS} fields.") from None
    # GitHub can wrap its JSON into a form of one field.
    if scheme is Scheme.GITHUB and "payload" in fields:
        return _read_json(fields["payload"][0].encode())
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


def _read_json(body: bytes) -> object:
    try:
        found: Any = json.loads(body.decode(), parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, (dict, list)):
        raise MalformedRequest("Send a JSON object or list in UTF-8, or a form.")
    return found  # pyright: ignore[reportUnknownVariableType]


def _reject_constant(word: str) -> object:
    raise ValueError(word)
