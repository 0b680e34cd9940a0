"""Translate errors of the Graph API into errors of an adapter. The code of an error says more than its status."""

from typing import Any, cast

import httpx2

from palaver.protocols import PlatformBusy, PlatformError, PlatformRefused, SendRefused, TargetGone, answer_error

OUTSIDE_WINDOW = 131047
WRONG_TOKEN = (
    "WhatsApp rejects the token: it is wrong, expired or revoked. Generate another one for a system user in your "  # noqa: S105
    "business settings; those do not expire."
)
_NO_PERMISSION = (
    "The token has no permission for this number. Give its system user the app, the WhatsApp account and the "
    "permission whatsapp_business_messaging."
)
_NOT_REGISTERED = "This number is not registered for the Cloud API. Register it under API Setup."
_LOCKED = "Meta has restricted or locked this account. Open business.facebook.com/accountquality to see why."
_NOT_PAID = "Meta cannot charge your account. Check the payment method in WhatsApp Manager."
_REFUSED = {
    0: WRONG_TOKEN,
    3: _NO_PERMISSION,
    10: _NO_PERMISSION,
    190: WRONG_TOKEN,
    368: _LOCKED,
    131005: _NO_PERMISSION,
    131031: _LOCKED,
    131042: _NOT_PAID,
    131045: _NOT_REGISTERED,
    133010: _NOT_REGISTERED,
}
_PERMISSIONS = range(200, 300)
# Seconds to wait: for the app or account as a whole, for one number, for one person.
_BUSY = {4: 60.0, 80007: 60.0, 130429: 5.0, 131048: 3600.0, 131056: 8.0, 131208: 60.0, 133016: 3600.0}
_GONE = {
    131026: "The number is not on WhatsApp, or cannot get messages of businesses.",
    131041: "The group does not exist, or this number is no longer in it.",
    131207: "Meta has suspended the group.",
}
_WORDS = {
    131020: "Nobody else is in the group.",
    131021: "This is the number of the account itself.",
    131030: "While the app is in development, you can only write to the numbers listed under API Setup. Add this one.",
    131049: "Meta did not deliver the message, to limit how many messages of businesses people get.",
    131050: "The person has stopped marketing messages of this account.",
}


class OutsideWindow(SendRefused):
    """More than 24 hours have passed since the person last wrote: only templates are delivered."""

    def __init__(self) -> None:
        super().__init__(
            "The person has not written for 24 hours, so WhatsApp only delivers templates. Set the option template."
        )


def explain_code(code: int) -> PlatformError | None:
    """Return what an error code means; None if it does not say more than the status."""
    if code == OUTSIDE_WINDOW:
        return OutsideWindow()
    if code in _BUSY:
        return PlatformBusy(_BUSY[code])
    if code in _REFUSED or code in _PERMISSIONS:
        return PlatformRefused(_REFUSED.get(code, _NO_PERMISSION))
    if code in _GONE:
        return TargetGone(_GONE[code])
    return SendRefused(_WORDS[code]) if code in _WORDS else None


def explain(response: httpx2.Response) -> PlatformError | None:
    try:
        found: Any = response.json()
        error = cast("dict[str, Any]", found["error"])
        code = int(error["code"])
    except (ValueError, KeyError, TypeError):
        return None
    if known := explain_code(code):
        return known
    if not 400 <= response.status_code < 500 or response.status_code in {401, 408, 429}:  # noqa: PLR2004
        return None
    data: Any = error.get("error_data")
    details = cast("dict[str, Any]", data).get("details") if isinstance(data, dict) else None
    words = f"{code} {details or error.get('message') or ''}".strip()
    return answer_error("WhatsApp", response.status_code, sending=False, words=words)
