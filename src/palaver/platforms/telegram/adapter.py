"""The Telegram adapter. Updates are confirmed by asking for the ones after them."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from telegram import Bot, BotCommand, Update, WebhookInfo

from palaver.platforms.telegram import PLATFORM
from palaver.platforms.telegram.client import (
    API,
    DOWNLOADS,
    UPDATE_KINDS,
    ApiError,
    BotConnection,
    Mode,
    TelegramOptions,
    fetch_updates,
)
from palaver.platforms.telegram.parse import (
    ButtonPress,
    ChatMigrated,
    Event,
    NewMessage,
    OwnBot,
    TopicName,
    TopicNames,
    decode_topics,
    encode_topics,
    parse,
    topic_name,
)
from palaver.platforms.telegram.send import MAX_TEXT, edit_text, send_text, send_upload, thread
from palaver.protocols import (
    Attachment,
    HttpRequest,
    HttpResponse,
    Inbound,
    Label,
    Limits,
    MenuCommand,
    Outbound,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    Receiver,
    SendUnclear,
    SystemClock,
    Unit,
    VoiceFormat,
    fit_menu,
    is_secret,
    one_line,
    parse_or_skip,
    take_json,
)

log = logging.getLogger(__name__)

_LONG_POLL_SECONDS = 50
_LEAST_POLL_SECONDS = 1.0
"""How long a poll without news takes at least: some servers and proxies answer at once instead of waiting."""
_WEBHOOK_CHECK_SECONDS = 60.0
_RECENT_ERROR = timedelta(seconds=2 * _WEBHOOK_CHECK_SECONDS)
"""A webhook error older than this is ignored."""
_DRAFT_INTERVAL = 3.0
_GROUP_DRAFT_INTERVAL = 6.0
"""Edits count as messages, and a group takes 20 a minute: leave half of them for answers."""
_CHUNK_BYTES = 1 << 16
_SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105
_COMMAND_NAME = r"[a-z0-9_]{1,32}"
_MAX_COMMANDS = 100
_MAX_HELP = 256
_MAX_TOPIC_NAME = 128
_MAX_REASON = 200
_MAX_TOPICS = 1_000


class TelegramAdapter:
    platform = PLATFORM
    options = TelegramOptions
    # 96 characters are reserved for what the gateway adds. Beyond 20 messages a minute a group answers 429.
    limits = Limits(
        text=MAX_TEXT - 96,
        unit=Unit.UTF16,
        interval=1.0,
        draft_interval=_DRAFT_INTERVAL,
        group_draft_interval=_GROUP_DRAFT_INTERVAL,
        announces_requests=True,
    )

    def __init__(self, account: str, options: TelegramOptions) -> None:
        self.account = account
        self._options = options
        self._clock = SystemClock()
        self._open: BotConnection | None = None
        self._serving: Receiver | None = None
        """While this worker serves the account."""
        self._known_bot: OwnBot | None = None
        self._topics: TopicNames | None = None
        """As far as updates told them; None before they are loaded. They are stored: nothing else tells them."""
        self._webhook_failing = False
        """At the last check, Telegram had updates for us and could not deliver them."""

    async def check(self) -> str:
        async with self._bot() as bot:
            return f"@{(await bot.get_me()).username}"

    @property
    def takes_callbacks(self) -> bool:
        return self._options.mode is Mode.WEBHOOK

    async def show_menu(self, commands: Sequence[MenuCommand]) -> None:
        shown = fit_menu(commands, name=_COMMAND_NAME, max_help=_MAX_HELP, max_commands=_MAX_COMMANDS)
        async with self._bot() as bot:
            await bot.set_my_commands([BotCommand(command.name, command.help) for command in shown])

    # Incoming

    async def run(self, receiver: Receiver) -> None:
        line = BotConnection(self._options)
        with API.requests():
            async with line.used() as bot:
                self._known_bot = await self._fetch_own_bot(bot)
                self._open = line
                self._serving = receiver
                try:
                    await (self._poll if self._options.mode is Mode.POLL else self._serve_webhook)(bot, receiver)
                except asyncio.CancelledError:
                    await line.close()
                    raise
                finally:
                    self._open = self._serving = None

    async def _poll(self, bot: Bot, receiver: Receiver) -> None:
        await bot.delete_webhook()
        await receiver.connected()
        offset = 0
        while True:
            began = time.monotonic()
            updates = await fetch_updates(bot, offset, _LONG_POLL_SECONDS)
            for update in updates:
                await self._process(update, await self._own_bot(), receiver)
            newest = max((int(update["update_id"]) + 1 for update in updates), default=offset)
            if newest <= offset:
                await asyncio.sleep(began + _LEAST_POLL_SECONDS - time.monotonic())
            offset = max(offset, newest)

    async def _serve_webhook(self, bot: Bot, receiver: Receiver) -> None:
        url = f"{self._options.public_url}/in/{self.platform.name}/{quote(self.account, safe='')}"
        try:
            await bot.set_webhook(url, allowed_updates=UPDATE_KINDS, secret_token=self._options.shared_secret)
        except ApiError as refusal:
            if refusal.code != HTTPStatus.BAD_REQUEST:
                raise
            raise PlatformRefused(f"Telegram rejects the webhook {url}: {refusal.words[:_MAX_REASON]}") from refusal
        if not self._webhook_failing:
            await receiver.connected()
        while True:
            await asyncio.sleep(_WEBHOOK_CHECK_SECONDS)
            self._check_webhook(await bot.get_webhook_info(), url)
            if self._webhook_failing:
                self._webhook_failing = False
                await receiver.connected()

    def _check_webhook(self, found: WebhookInfo, url: str) -> None:
        if found.url != url:
            raise PlatformDown("Somebody has set another webhook, or is polling this bot.")
        if not found.last_error_date or self._clock.now() - found.last_error_date >= _RECENT_ERROR:
            return
        why = one_line(found.last_error_message or "", _MAX_REASON)
        if found.pending_update_count:
            self._webhook_failing = True
            raise PlatformDown(f"Telegram could not reach our webhook: {why}")
        log.warning("Telegram could not reach our webhook: %s", why, extra={"action": "telegram.webhook_failing"})

    async def handle_callback(self, request: HttpRequest, receiver: Receiver) -> HttpResponse:
        """Process an update. Telegram repeats it until we answer 200."""
        given = request.headers.get(_SECRET_HEADER, "")
        is_authentic = self.takes_callbacks and is_secret(given, self._options.shared_secret)

        async def take(update: Mapping[str, Any]) -> None:
            await self._process(update, await self._own_bot(), receiver)

        return await take_json(request, take, is_authentic=is_authentic)

    async def _process(self, update: Mapping[str, Any], us: OwnBot, receiver: Receiver) -> None:
        """Store the update, or ignore it."""
        parsed = parse_or_skip(self.platform.name, lambda: self._parse(update, us))
        if parsed is None:
            return
        event, topic = parsed
        topics = await self._learn_topic(topic, receiver)
        match event:
            case NewMessage():
                await receiver.receive(_with_topic(event.inbound, topics), event.trust)
            case ButtonPress():
                await receiver.receive(_with_topic(event.inbound, topics), event.trust)
                await self._acknowledge_press(event)
            case ChatMigrated():
                await receiver.chat_moved(event.old, event.new)
            case None:
                pass

    def _parse(self, update: Mapping[str, Any], us: OwnBot) -> tuple[Event | None, TopicName | None]:
        received = Update.de_json(dict(update), None)
        return parse(received, us, self._clock.now()), topic_name(received)

    async def _learn_topic(self, topic: TopicName | None, receiver: Receiver) -> TopicNames:
        """Return the names of topics, with the one that an update tells. The name at its creation may be outdated."""
        if self._topics is None:
            self._topics = decode_topics(await receiver.load_position())
        if topic is None:
            return self._topics
        place = topic.chat_id, topic.thread_id
        known = self._topics.get(place)
        if known is None or (topic.is_new and known != topic.name):
            newest = [*self._topics.items(), (place, topic.name)][-_MAX_TOPICS:]
            if self._serving is not None:  # A worker that is only called back cannot store them.
                await self._serving.save_position(encode_topics(dict(newest)))
            self._topics = dict(newest)
        return self._topics

    async def _acknowledge_press(self, pressed: ButtonPress) -> None:
        """Confirm the press. In a group the buttons stay: somebody else may have to press."""
        try:
            async with self._bot() as bot:
                await bot.answer_callback_query(pressed.query)
                if pressed.chat_id > 0:
                    await bot.edit_message_reply_markup(pressed.chat_id, pressed.message_id)
        except PlatformError as error:
            log.info(
                "could not confirm a button press: %s", type(error).__name__, extra={"action": "telegram.button_failed"}
            )

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        async with self._bot(DOWNLOADS.requests) as bot:
            found = await bot.get_file(file.handle or "")
            content = bytes(await found.download_as_bytearray())
        for start in range(0, len(content), _CHUNK_BYTES):
            yield content[start : start + _CHUNK_BYTES]

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Telegram has no idempotency keys."""
        del idempotency_key
        async with self._bot(API.sends) as bot:
            return await send_text(bot, outbound)

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        async with self._bot(API.sends) as bot:
            await edit_text(bot, receipt, outbound)

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        del idempotency_key
        async with self._bot(API.sends) as bot:
            return await send_upload(bot, outbound, content)

    def voice_format(self) -> VoiceFormat:
        return VoiceFormat.OPUS

    async def typing(self, outbound: Outbound) -> None:
        async with self._bot() as bot:
            await bot.send_chat_action(outbound.chat_id, "typing", message_thread_id=thread(outbound))

    async def open_thread(self, outbound: Outbound, *, idempotency_key: str) -> str:
        name = one_line(outbound.opens or "", _MAX_TOPIC_NAME) or "…"
        async with self._bot(API.sends) as bot:
            topic = str((await bot.create_forum_topic(outbound.chat_id, name)).message_thread_id)
        inside = Outbound(platform=outbound.platform, chat_id=outbound.chat_id, text=outbound.text, thread_id=topic)
        try:
            await self.send(inside, idempotency_key=idempotency_key)
        except PlatformError as error:
            # The topic exists: a second one would be worse than an empty one.
            raise SendUnclear(f"The topic was created, but the message failed: {error}") from error
        return topic

    # Connection

    @asynccontextmanager
    async def _bot(self, errors: Callable[[], AbstractContextManager[None]] = API.requests) -> AsyncGenerator[Bot]:
        """Use the open connection, or a temporary one."""
        async with (self._open or BotConnection(self._options)).used() as bot:
            with errors():
                yield bot

    async def _own_bot(self) -> OwnBot:
        if self._known_bot is None:
            async with self._bot() as bot:
                self._known_bot = await self._fetch_own_bot(bot)
        return self._known_bot

    async def _fetch_own_bot(self, bot: Bot) -> OwnBot:
        return OwnBot(self.account, self._options.bot_id, (await bot.get_me()).username or "")


def _with_topic(inbound: Inbound, topics: TopicNames) -> Inbound:
    name = topics.get((inbound.source.chat_id or "", inbound.source.thread_id or ""))
    return replace(inbound, labels=replace(inbound.labels, topic=Label(name))) if name else inbound
