"""Where people speak to gateways that are killed: platforms on loopback, each with a server of its own."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from tests.crash.square import Square
from tests.crash.square_discord import discord_square
from tests.crash.square_email import email_square
from tests.crash.square_imessage import imessage_square
from tests.crash.square_signal import signal_square
from tests.crash.square_slack import slack_square
from tests.crash.square_telegram import telegram_square
from tests.crash.square_whatsapp import whatsapp_square
from tests.crash.square_xmpp import xmpp_square

__all__ = ["LOOPBACK", "NEEDS"]

LOOPBACK: dict[str, Callable[[], AbstractAsyncContextManager[Square]]] = {
    "telegram": telegram_square,
    "discord": discord_square,
    "slack": slack_square,
    "whatsapp": whatsapp_square,
    "signal": signal_square,
    "imessage": imessage_square,
    "email": email_square,
    "xmpp": xmpp_square,
}
NEEDS = {"email": "dovecot", "xmpp": "prosody"}
"""Programs that serve some of them."""
