"""Parse what people say on IRC."""

import re
from datetime import datetime
from typing import NamedTuple

from palaver.platforms.irc import lower
from palaver.platforms.irc.wire import Line
from palaver.protocols import CHANNEL, DM, Inbound, NewMessage, Source, Trust, after_name, parse_time

_FORMATS = re.compile(r"\x03(?:\d{1,2}(?:,\d{1,2})?)?|\x04(?:[0-9a-fA-F]{6})?|[\x02\x0f\x11\x16\x1d\x1e\x1f]")
_CHANNELS = ("#", "&", "+", "!")
_ACTION = "\x01ACTION "


class Us(NamedTuple):
    account: str
    network: str
    nick: str


def parse(line: Line, us: Us, now: datetime) -> NewMessage | None:
    """Parse a PRIVMSG; None if nobody says anything to us. A NOTICE is never answered."""
    sender = line.nick
    if line.command != "PRIVMSG" or not sender or "." in sender or lower(sender) == lower(us.nick):
        return None
    target, text = line.params
    if text.startswith("\x01"):
        if not text.startswith(_ACTION):
            return None
        text = f"* {text.removeprefix(_ACTION)}"
    text = _FORMATS.sub("", text.rstrip("\x01"))
    is_channel = target.startswith(_CHANNELS)
    rest = after_name(text, (us.nick, f"@{us.nick}"))
    inbound = Inbound(
        source=Source(
            platform="irc",
            account=us.account,
            scope_id=us.network,
            chat_kind=CHANNEL if is_channel else DM,
            chat_id=lower(target if is_channel else sender),
            user_id=lower(sender),
            # An account with the services, which the network has verified. Anybody can take a nick.
            user_id_alt=line.tags.get("account") or None,
            message_id=line.tags.get("msgid") or None,
        ),
        text=text if rest is None else rest,
        at=parse_time(line.tags["time"]) if line.tags.get("time") else now,
        mentions_us=_is_mentioned(text, us.nick),
    )
    return NewMessage(inbound, Trust(is_bot="bot" in line.tags))


def _is_mentioned(text: str, nick: str) -> bool:
    return bool(re.search(rf"(?<![\w\[\]\\`^{{|}}-]){re.escape(nick)}(?![\w\[\]\\`^{{|}}-])", text, re.IGNORECASE))
