"""Calls as programs make them, signed, and a gateway with a webhook account to make them to."""

import json
from datetime import UTC, datetime
from itertools import count
from typing import Any

from palaver.model.access import AccessRole, Grant
from palaver.platforms.webhook.adapter import WebhookAdapter
from palaver.platforms.webhook.options import WebhookOptions
from palaver.platforms.webhook.signature import Scheme, decode_secret, sign
from palaver.protocols.capabilities import HttpRequest, HttpResponse
from tests.engine.gateway import Bench
from tests.platforms.webhook.loopback import SECRET

__all__ = ["GRANTS", "account", "call", "called", "told"]

GRANTS = (Grant(platform="fake", role=AccessRole.MEMBER), Grant(platform="webhook", role=AccessRole.MEMBER))
_ids = count(1)


def account(name: str = "ci", /, **options: Any) -> WebhookAdapter:
    calls = {} if "url" in options and not options.get("called") else {"text": "Build {{ build }}", "fences": False}
    return WebhookAdapter(name, WebhookOptions.model_validate({"secret": SECRET, **calls, **options}))


def call(payload: object, *, id: str | None = None, **headers: str) -> HttpRequest:  # noqa: A002 - as it is called there
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    signature = sign(decode_secret(Scheme.STANDARD, SECRET), id or f"msg_{next(_ids)}", datetime.now(UTC), body)
    return HttpRequest(method="POST", headers={**signature, **headers}, body=body)


async def called(here: Bench, adapter: WebhookAdapter, which: HttpRequest) -> HttpResponse:
    return await adapter.handle_callback(which, here.engine.receiver("webhook", adapter.account))


def told(reply: HttpResponse) -> dict[str, Any]:
    return json.loads(reply.body)
