"""The adapter for a bot on Telegram. What it has read is confirmed by asking for what comes after it."""

import asyncio
import hmac
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from telegram import Bot, BotCommand, Message, Update, WebhookInfo
from telegram.error import TelegramError

from palaver.model.attachment import Attachment
from palaver.model.split import Unit
from palaver.model.text import one_line
from palaver.model.turn import Outbound
from palaver.platforms.catalog import PLATFORMS
from palaver.platforms.telegram.client import HEARD, Line, raw_updates
from palaver.platforms.telegram.errors import Refusal, lost, unsent
from palaver.platforms.telegram.files import TOO_LARGE
from palaver.platforms.telegram.options import GUIDE, Mode, TelegramOptions
from palaver.platforms.telegram.parse import Moved, Pressed, Said, Us, parse
from palaver.platforms.telegram.render import Rendered
from palaver.platforms.telegram.send import (
    LONGEST_CAPTION,
    LONGEST_TEXT,
    NO_PREVIEW,
    buttons,
    entities,
    kind_of_file,
    message_number,
    placed,
    rendered,
    thread,
    upload,
)
from palaver.protocols.adapter import (
    Limits,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    Receiver,
    SendRefused,
    SendUnclear,
    TargetGone,
)
from palaver.protocols.capabilities import HttpRequest, HttpResponse, MenuCommand
from palaver.protocols.clock import Clock, SystemClock

__all__ = ["TelegramAdapter"]

log = logging.getLogger(__name__)

_WAIT = 50
"""Seconds for which Telegram keeps a request until there is something new."""
_LOOK = 60.0
"""Seconds between two looks at whether the webhook is still ours."""
_FRESH = timedelta(seconds=2 * _LOOK)
"""For how long a call that failed says something about those to come."""
_DRAFT_INTERVAL = 3.0
_SHARED_DRAFT_INTERVAL = 6.0
"""Edits count as messages: half of the 20 a minute that a group takes is left for answers."""
_PIECE = 1 << 16
_SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105
_COMMAND = re.compile(r"[a-z0-9_]{1,32}")
_MOST_COMMANDS = 100
_LONGEST_HELP = 256
_LONGEST_TOPIC = 128
_LONGEST_REASON = 200


class TelegramAdapter:
    platform = PLATFORMS["telegram"]
    options = TelegramOptions
    guide = GUIDE
    # Room is left for what the gateway adds. Past 20 messages a minute in a group Telegram says how long to wait.
    limits = Limits(
        text=LONGEST_TEXT - 96,
        unit=Unit.UTF16,
        interval=1.0,
        draft_interval=_DRAFT_INTERVAL,
        group_draft_interval=_SHARED_DRAFT_INTERVAL,
    )

    def __init__(self, options: TelegramOptions, account: str, clock: Clock | None = None) -> None:
        self.account = account
        self._options = options
        self._clock = clock or SystemClock()
        self._open: Line | None = None
        """The line while we run."""
        self._us: Us | None = None
        self._is_uncalled = False
        """When it was last looked at, Telegram had messages for us and could not bring them."""

    @classmethod
    def make(cls, account: str, options: TelegramOptions) -> "TelegramAdapter":
        return cls(options, account)

    async def check(self) -> str:
        async with self._line() as bot:
            return f"@{(await bot.get_me()).username}"

    @property
    def takes_callbacks(self) -> bool:
        return self._options.mode is Mode.WEBHOOK

    async def show_menu(self, lines: Sequence[MenuCommand]) -> None:
        shown = [
            BotCommand(line.name, one_line(line.help, _LONGEST_HELP) or line.name)
            for line in lines
            if _COMMAND.fullmatch(line.name)
        ]
        async with self._line() as bot:
            await bot.set_my_commands(shown[:_MOST_COMMANDS])

    # Messages in

    async def run(self, receiver: Receiver) -> None:
        line = Line(self._options)
        async with _used(line, lost) as bot:
            self._us = await self._named(bot)
            self._open = line
            try:
                await (self._poll if self._options.mode is Mode.POLL else self._be_called)(bot, receiver)
            except asyncio.CancelledError:
                await line.close()
                raise
            finally:
                self._open = None

    async def _poll(self, bot: Bot, receiver: Receiver) -> None:
        await bot.delete_webhook()
        await receiver.connected()
        offset = 0
        while True:
            for update in await raw_updates(bot, offset, _WAIT):
                await self._take(update, await self._who(), receiver)
                offset = int(update["update_id"]) + 1

    async def _be_called(self, bot: Bot, receiver: Receiver) -> None:
        url = f"{self._options.public_url}/in/{self.platform.name}/{quote(self.account, safe='')}"
        try:
            await bot.set_webhook(url, allowed_updates=HEARD, secret_token=self._options.shared_secret)
        except Refusal as refusal:
            if refusal.code != HTTPStatus.BAD_REQUEST:
                raise
            raise PlatformRefused(f"Telegram does not call {url}: {refusal.words[:_LONGEST_REASON]}") from refusal
        if not self._is_uncalled:
            await receiver.connected()
        while True:
            await asyncio.sleep(_LOOK)
            self._demand_calls(await bot.get_webhook_info(), url)
            if self._is_uncalled:
                self._is_uncalled = False
                await receiver.connected()

    def _demand_calls(self, found: WebhookInfo, url: str) -> None:
        if found.url != url:
            raise PlatformDown("somebody has set another webhook, or reads the messages of this bot without one")
        if not found.last_error_date or self._clock.now() - found.last_error_date >= _FRESH:
            return
        why = one_line(found.last_error_message or "", _LONGEST_REASON)
        if found.pending_update_count:
            self._is_uncalled = True
            raise PlatformDown(f"Telegram could not call us: {why}")
        log.warning("Telegram could not call us: %s", why, extra={"action": "telegram.webhook_failing"})

    async def handle_callback(self, call: HttpRequest, receiver: Receiver) -> HttpResponse:
        """A call by Telegram. It comes again until it is answered that all is well."""
        given, secret = call.headers.get(_SECRET_HEADER, ""), self._options.shared_secret
        if self._options.mode is not Mode.WEBHOOK or not hmac.compare_digest(given.encode(), secret.encode()):
            return HttpResponse(status=HTTPStatus.UNAUTHORIZED)
        try:
            update: object = json.loads(call.body)
        except (ValueError, RecursionError):
            return HttpResponse(status=HTTPStatus.BAD_REQUEST)
        if not isinstance(update, dict):
            return HttpResponse(status=HTTPStatus.BAD_REQUEST)
        try:
            await self._take(cast("dict[str, Any]", update), await self._who(), receiver)
        except PlatformError:
            return HttpResponse(status=HTTPStatus.SERVICE_UNAVAILABLE)
        return HttpResponse()

    async def _take(self, update: Mapping[str, Any], us: Us, receiver: Receiver) -> None:
        """Returns when the update is safe with us, or nothing to us."""
        try:
            heard = parse(Update.de_json(dict(update), None), us, self._clock.now())
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # It would come again and again, and keep everything behind it from us.
            log.warning("an update was unreadable: %s", type(error).__name__, extra={"action": "telegram.unreadable"})
            return
        match heard:
            case Said():
                await receiver.receive(heard.inbound, heard.trust)
            case Pressed():
                await receiver.receive(heard.inbound, heard.trust)
                await self._confirm(heard)
            case Moved():
                await receiver.chat_moved(heard.old, heard.new)
            case None:
                pass

    async def _confirm(self, pressed: Pressed) -> None:
        """Show that the button was heard. Where others could have pressed it, it stays for whoever may."""
        try:
            async with self._line() as bot:
                await bot.answer_callback_query(pressed.query)
                if pressed.chat_id > 0:
                    await bot.edit_message_reply_markup(pressed.chat_id, pressed.message_id)
        except PlatformError as error:
            log.info("a button was not settled: %s", type(error).__name__, extra={"action": "telegram.button_failed"})

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        async with self._line(_unfetched) as bot:
            found = await bot.get_file(file.handle or "")
            content = bytes(await found.download_as_bytearray())
        for start in range(0, len(content), _PIECE):
            yield content[start : start + _PIECE]

    # Messages out

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Telegram does not know a message again: a key is of no use."""
        del idempotency_key

        async def sending(shown: Rendered, where: Mapping[str, Any]) -> Message:
            return await bot.send_message(
                text=shown.text,
                entities=entities(shown.marks),
                reply_markup=buttons(outbound),
                link_preview_options=NO_PREVIEW,
                **where,
            )

        async with self._line(unsent) as bot:
            return await _put(outbound, LONGEST_TEXT, sending)

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        number = message_number(receipt)
        if number is None:
            raise SendRefused("there is no such message: the number of one is wanted")

        async def sending(shown: Rendered) -> None:
            await bot.edit_message_text(
                shown.text,
                outbound.chat_id,
                number,
                entities=entities(shown.marks),
                reply_markup=buttons(outbound),
                link_preview_options=NO_PREVIEW,
            )

        async with self._line(unsent) as bot:
            try:
                await rendered(outbound.text, LONGEST_TEXT, sending)
            except Refusal as refusal:
                if not refusal.says("message is not modified"):
                    raise

    async def typing(self, outbound: Outbound) -> None:
        async with self._line() as bot:
            await bot.send_chat_action(outbound.chat_id, "typing", message_thread_id=thread(outbound))

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        """What Telegram does not take for a picture, a video or a voice is sent as a document."""
        del idempotency_key
        file = outbound.file
        if file is None:
            raise SendRefused("there is no file")
        kind = kind_of_file(file, content)
        async with self._line(unsent) as bot:
            try:
                return await _upload(bot, outbound, file, content, kind)
            except Refusal as refusal:
                is_about_file = refusal.code == HTTPStatus.BAD_REQUEST and not isinstance(unsent(refusal), TargetGone)
                if kind == "document" or refusal.moved_to or not is_about_file:
                    raise
                return await _upload(bot, outbound, file, content, "document")

    async def open_thread(self, outbound: Outbound, *, idempotency_key: str) -> str:
        name = one_line(outbound.opens or "", _LONGEST_TOPIC) or "…"
        async with self._line(unsent) as bot:
            topic = str((await bot.create_forum_topic(outbound.chat_id, name)).message_thread_id)
        inside = Outbound(platform=outbound.platform, chat_id=outbound.chat_id, text=outbound.text, thread_id=topic)
        try:
            await self.send(inside, idempotency_key=idempotency_key)
        except PlatformError as error:
            # The topic is there: a second one would be worse than an empty one.
            raise SendUnclear(f"the topic was begun, but: {error}") from error
        return topic

    # The line

    def _line(self, means: Callable[[TelegramError], PlatformError] = lost) -> AbstractAsyncContextManager[Bot]:
        """The line that is open, or one for the moment."""
        return _used(self._open or Line(self._options), means)

    async def _who(self) -> Us:
        if self._us is None:
            async with self._line() as bot:
                self._us = await self._named(bot)
        return self._us

    async def _named(self, bot: Bot) -> Us:
        return Us(self.account, self._options.bot_id, (await bot.get_me()).username or "")


@asynccontextmanager
async def _used(line: Line, means: Callable[[TelegramError], PlatformError]) -> AsyncGenerator[Bot]:
    """What goes wrong on the line is told in the words of an adapter."""
    async with line.used() as bot:
        try:
            yield bot
        except TelegramError as error:
            raise means(error) from error


async def _upload(bot: Bot, outbound: Outbound, file: Attachment, content: Path, kind: str) -> str:
    async def sending(shown: Rendered, where: Mapping[str, Any]) -> Message:
        send: Callable[..., Any] = getattr(bot, f"send_{kind}")
        words = {"caption": shown.text, "caption_entities": entities(shown.marks)} if shown.text else {}
        return await send(**{kind: upload(file, content)}, **words, **where)

    return await _put(outbound, LONGEST_CAPTION, sending)


async def _put(
    outbound: Outbound, room: int, sending: Callable[[Rendered, Mapping[str, Any]], Awaitable[Message]]
) -> str:
    """The number of the message."""

    async def put(shown: Rendered) -> Message:
        return await placed(outbound, partial(sending, shown))

    return str((await rendered(outbound.text, room, put)).message_id)


def _unfetched(error: TelegramError) -> PlatformError:
    """A file has no address that stays, so a missing one says nothing about the token."""
    if isinstance(error, Refusal) and error.says("file is too big"):
        return SendRefused(TOO_LARGE)
    if isinstance(error, Refusal) and error.code == HTTPStatus.NOT_FOUND:
        return SendRefused("Telegram does not have the file any more")
    return lost(error)
