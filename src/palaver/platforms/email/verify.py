"""Decide from a mail's headers whether a program sent it, and whether its sender is who it says.

A From header is text that anybody can write. The receiving server checks it by DKIM and DMARC and writes what it found
into Authentication-Results (RFC 8601); it removes such headers of its own name that come from outside.
"""

import re
from collections.abc import Iterator, Mapping
from email.message import Message

from palaver.protocols import value

_BULK = frozenset({"bulk", "list", "junk", "auto_reply"})
_ROBOTS = re.compile(r"mailer-daemon|postmaster|bounces?|(?:do[._-]?)?no[t]?[._-]?reply", re.IGNORECASE)
_SUPPRESSED = ("X-Auto-Response-Suppress", "X-Autoreply", "X-Autorespond", "X-Autorespond-To")


def automatic_reason(mail: Message, sender: str) -> str | None:
    """Return why a mail must not be answered; None if a person wrote it to us."""
    local = sender.partition("@")[0]
    checks = {
        "a bounce or report": mail.get_content_type() == "multipart/report" or _has_no_return_path(mail),
        "automatic": _header(mail, "Auto-Submitted").partition(";")[0].strip() not in {"", "no"}
        or any(name in mail for name in _SUPPRESSED),
        "from a mailing list": any(name.lower().startswith("list-") for name in mail.keys()),  # noqa: SIM118
        "bulk mail": _header(mail, "Precedence").strip() in _BULK,
        "from a robot": bool(_ROBOTS.fullmatch(local)),
    }
    return next((reason for reason, is_true in checks.items() if is_true), None)


def _has_no_return_path(mail: Message) -> bool:
    """RFC 5321: a notice has an empty one, so that nobody answers it."""
    return _header(mail, "Return-Path").strip() == "<>"


def _header(mail: Message, name: str) -> str:
    return str(mail.get(name, "")).lower()


@value
class _Result:
    method: str
    result: str
    properties: Mapping[str, str]


def is_verified(mail: Message, sender: str, server: str) -> bool:
    """Return whether our own server vouches for the sender's domain, or for the sender."""
    found = [result for header in _own_results(mail, server) for result in _parse(header)]
    if any(each.method == "dmarc" and each.result == "fail" for each in found):
        return False
    return any(each.result == "pass" and _vouches(each, sender) for each in found)


def _vouches(found: _Result, sender: str) -> bool:
    domain = sender.rpartition("@")[2]
    match found.method:
        case "dmarc":
            return found.properties.get("header.from") == domain
        case "dkim":
            signer = found.properties.get("header.d") or found.properties.get("header.i", "").rpartition("@")[2]
            return bool(signer) and f".{domain}".endswith(f".{signer}")
        case "auth":
            return found.properties.get("smtp.auth") == sender
        case _:
            return False  # SPF alone says nothing about From.


def _own_results(mail: Message, server: str) -> Iterator[str]:
    """Yield the headers that our server wrote: its topmost, and others before the next hop. The rest can be forged."""
    is_found = False
    for name, text in mail.items():
        match name.lower():
            case "received" if is_found:
                return
            case "authentication-results":
                plain = _without_comments(str(text))
                if plain.partition(";")[0].split()[:1] == [server.lower()]:
                    is_found = True
                    yield plain
            case _:
                pass


def _parse(header: str) -> Iterator[_Result]:
    """Read `server; dkim=pass header.d=example.org; dmarc=…`."""
    for part in header.split(";")[1:]:
        pairs = [tuple(word.partition("=")[::2]) for word in part.split() if "=" in word]
        if pairs:
            (method, result), *rest = pairs
            # What is stated twice contradicts itself.
            names = [name for name, _ in rest]
            properties = {name: text for name, text in rest if names.count(name) == 1}
            yield _Result(method=method.partition("/")[0], result=result, properties=properties)


def _without_comments(text: str) -> str:
    """Remove comments, which can be nested, and unquote: a quoted string cannot add results of its own."""
    kept, depth, is_quoted, is_escaped = list[str](), 0, False, False
    for character in text.lower():
        if is_escaped:
            is_escaped = False
        elif character == "\\":
            is_escaped = True
        elif character == '"' and not depth:
            is_quoted = not is_quoted
        elif character in "()" and not is_quoted:
            depth = max(0, depth + (1 if character == "(" else -1))
        elif not depth and not (is_quoted and (character in ";=" or character.isspace())):
            kept.append(character)
    return "".join(kept)
