"""The canonical form of a person's id on each platform: what its adapter says, however people write it.

Each rule returns None for what cannot be an id there. Facts from the vendors: E.164 numbers have 7 to 15 digits;
WhatsApp names a number without the plus, by JID with or without a device, or by a hidden id (LID); Signal names an
account by UUID; Discord ids and Telegram ids are numbers; Slack ids are capital letters and digits; bare JIDs, and
mail addresses as we compare them, ignore case; a Matrix id is `@localpart:server`.
"""

import re
from collections.abc import Callable

_DECORATION = re.compile(r"[\s().\-\u00a0\u2010-\u2015]+")
_NUMBER = re.compile(r"(\+|00)?([1-9][0-9]{6,14})")
_SHORT_CODE = re.compile(r"[0-9]{3,6}")
_SENDER_NAME = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9 ]{1,11}")
_JID_OF_NUMBER = re.compile(r"([0-9]{5,20})(?:[:.][0-9]+)*@(?:s\.whatsapp\.net|c\.us)", re.IGNORECASE)
_LID = re.compile(r"([0-9]{1,32})(?::[0-9]+)?@lid", re.IGNORECASE)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_MAIL = re.compile(r"[^\s@<>()\[\],;:\"]+@[^\s@<>()\[\],;:\"]+")
_NAMED_MAIL = re.compile(r"[^<>]*<([^<>]+)>")
_MATRIX = re.compile(r"@[^\s:]+:[^\s]+")
_SLACK = re.compile(r"(?:<@)?([UWB][A-Z0-9]{1,30})(?:\|[^>]*)?>?", re.IGNORECASE)
_DISCORD = re.compile(r"(?:<@!?)?([0-9]{1,20})>?")
_TELEGRAM = re.compile(r"[^A-Za-z@\s]+")
_IRC = re.compile(r"[^\s!@,:#&+][^\s!@,:]*")

UserRule = Callable[[str], str | None]


def _digits(text: str) -> str | None:
    found = _NUMBER.fullmatch(_DECORATION.sub("", text))
    return found[2] if found else None


def whatsapp(text: str) -> str | None:
    text = text.strip()
    if found := _JID_OF_NUMBER.fullmatch(text):
        return found[1]
    if found := _LID.fullmatch(text):
        return f"{found[1]}@lid"
    is_business_id = re.fullmatch(r"[A-Z]{2}\.[A-Za-z0-9]{1,128}", text)
    return text if is_business_id else _digits(text)


def signal(text: str) -> str | None:
    text = text.strip()
    return text.lower() if _UUID.fullmatch(text) else phone(text)


def phone(text: str) -> str | None:
    digits = _digits(text)
    return digits and f"+{digits}"


def sms(text: str) -> str | None:
    """A number, a short code, or the name that a company sends under."""
    text = text.strip()
    return text if _SHORT_CODE.fullmatch(text) or _SENDER_NAME.fullmatch(text) else phone(text)


def email(text: str) -> str | None:
    text = text.strip()
    named = _NAMED_MAIL.fullmatch(text)
    address = (named[1] if named else text).strip().removeprefix("mailto:").lower()
    return address if _MAIL.fullmatch(address) else None


def imessage(text: str) -> str | None:
    return email(text) if "@" in text else phone(text)


def xmpp(text: str) -> str | None:
    bare = text.strip().removeprefix("xmpp:").partition("/")[0].lower()
    return bare if _MAIL.fullmatch(bare) else None


def matrix(text: str) -> str | None:
    text = text.strip()
    if not _MATRIX.fullmatch(text):
        return None
    local, _, server = text.partition(":")
    return f"{local}:{server.lower()}"


def irc(text: str) -> str | None:
    """A nick. Only ASCII ignores case: what else is equal differs between networks."""
    nick = text.strip()
    return _lower_ascii(nick) if _IRC.fullmatch(nick) else None


def _lower_ascii(text: str) -> str:
    return "".join(each.lower() if each.isascii() else each for each in text)


def _first_group(pattern: re.Pattern[str]) -> UserRule:
    def rule(text: str) -> str | None:
        found = pattern.fullmatch(text.strip())
        return found[1] if found else None

    return rule


discord = _first_group(_DISCORD)


def slack(text: str) -> str | None:
    """An id in small letters has a digit: without one it is a name, such as Bob."""
    found = _SLACK.fullmatch(text.strip())
    is_name = found and not found[1].isupper() and not any(map(str.isdigit, found[1]))
    return found[1].upper() if found and not is_name else None


def telegram(text: str) -> str | None:
    """A user name is no id: it can change hands."""
    text = text.strip()
    return text if _TELEGRAM.fullmatch(text) else None
