"""Twilio's signature of a call: its URL, and all fields of the form in the order of their names."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import parse_qsl

_MAX_FIELDS = 1000


def read_form(body: bytes) -> Mapping[str, str]:
    """Return the fields of a form. Raise ValueError if it is none."""
    text = body.decode("ascii")
    pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, max_num_fields=_MAX_FIELDS, errors="replace")
    return dict(pairs)


def sign(url: str, form: Mapping[str, str], token: str) -> str:
    """Return the signature of a call to this address."""
    plain = url + "".join(f"{name}{form[name]}" for name in sorted(form))
    digest = hmac.new(token.encode(), plain.encode("utf-8", "replace"), hashlib.sha1).digest()
    return base64.b64encode(digest).decode()
