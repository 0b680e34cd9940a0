"""A connection to an XMPP server: log in, ask, send, and acknowledge what is stored."""

import asyncio
import logging
import re
import secrets
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import cache, partial
from itertools import count
from typing import Annotated, Any, NamedTuple, TypeVar
from xml.etree.ElementTree import Element

import slixmpp
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from slixmpp.exceptions import IqError, IqTimeout
from slixmpp.plugins.xep_0198 import stanza as acknowledgements
from slixmpp.xmlstream import StanzaBase
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath

from palaver.platforms.xmpp import JID
from palaver.platforms.xmpp.parse import (
    CLIENT,
    CORRECT,
    GROUP_CHAT,
    MAM,
    OOB,
    PING,
    RECEIPTS,
    SID,
    STATES,
    bare,
    error_condition,
    has_content,
)
from palaver.platforms.xmpp.rooms import Rooms
from palaver.protocols import (
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
    is_loopback,
    request_leaves,
    split_names,
)
from palaver.protocols.options import AccountOptions


def _check_jid(text: str) -> str:
    if not re.fullmatch(JID, text):
        raise ValueError("an address with one @ and no resource")
    return text.lower()


Jid = Annotated[str, AfterValidator(_check_jid)]


class XmppOptions(AccountOptions):
    jid: Jid = Field(description="The address of the bot.", examples=["helper@example.org"])
    password: SecretStr = Field(min_length=1, description="The password of its account.")
    rooms: Annotated[list[Jid], BeforeValidator(split_names)] = Field(
        default_factory=list[str],
        max_length=50,
        description="The rooms that it enters.",
        examples=["[dev@rooms.example.org]"],
    )
    nick: str | None = Field(
        default=None, min_length=1, max_length=100, description="Its name in rooms; by default that of its address."
    )
    host: str | None = Field(
        default=None,
        pattern=r"^\S+$",
        description="The server, if its DNS records do not name it. Needs no TLS on loopback.",
        examples=["xmpp.example.org"],
    )
    port: int = Field(default=5222, ge=1, le=65535, description="Its port, if there is a host.")
    file_hosts: Annotated[list[str], BeforeValidator(split_names)] = Field(
        default_factory=list[str],
        description="Hosts from which it fetches files with HTTPS, besides the servers of the people; or URLs.",
    )
    threads: bool = Field(default=True, description="Whether a thread is a conversation of its own.")

    @property
    def domain(self) -> str:
        return self.jid.partition("@")[2]

    @property
    def room_nick(self) -> str:
        return self.nick or self.jid.partition("@")[0]

    @property
    def is_local(self) -> bool:
        """Whether what we send stays on this machine, and can do without TLS."""
        return self.host is not None and is_loopback(self.host)


T = TypeVar("T")

logging.getLogger("slixmpp").setLevel(logging.CRITICAL)  # It would log what people write.

_CONNECT_SECONDS = 15.0
_ANSWER_SECONDS = 60.0
_PING_SECONDS = 60.0
_CLOSE_SECONDS = 1.0
_REASON_SECONDS = 0.2
_MAX_READ = 5_000
"""How many messages can wait to be stored."""
_BUSY_SECONDS = 30.0
_WRONG_PASSWORD = "The XMPP server rejects the password. Check jid and password."  # noqa: S105
_NO_TLS = "The XMPP server offers no TLS, so the password is not sent to it. Use another server, or enable TLS there."
_WRONG_CERTIFICATE = "The certificate of the XMPP server is not valid for its domain. Ask its operator to renew it."
_GONE = frozenset(
    {
        "forbidden",
        "gone",
        "item-not-found",
        "not-acceptable",
        "not-allowed",
        "remote-server-not-found",
        "service-unavailable",
    }
)
_PLUGINS = ("xep_0030", "xep_0198", "xep_0199")
_TLS_PORT = 5223


class Live(NamedTuple):
    """A message that came, its number for the acknowledgement, and who has the nick of the sender in a room."""

    message: Element
    number: int
    jid: str | None


class Refusal(Exception):
    """The server answers a request with an error."""

    def __init__(self, condition: str) -> None:
        super().__init__(condition)
        self.condition = condition


class Stream:
    def __init__(self, options: XmppOptions) -> None:
        self._options = options
        self.domain = options.domain
        self._client = client = _make_client(options)
        client.plugin["xep_0198"].send_ack = self._acknowledge
        for name, take in (("message", self._take_message), ("presence", self._take_presence)):
            client.register_handler(Callback(f"palaver {name}", MatchXPath(f"{{{CLIENT}}}{name}"), take))
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_refused = False
        self._read: asyncio.Queue[Live | None] = asyncio.Queue()
        self._unstored: deque[int] = deque()
        self._sent: dict[str, asyncio.Future[str]] = {}
        self._pages: dict[str, list[Element]] = {}
        self._numbers = count(1)
        self.rooms = Rooms(self.write)

    # Logging in

    async def open(self) -> None:
        client = self._client
        options = self._options
        client.add_event_handler("failed_auth", self._note_refusal)
        client.add_event_handler("failed_all_auth", self._fail_to_log_in)
        client.add_event_handler("ssl_invalid_chain", partial(self._fail, PlatformRefused(_WRONG_CERTIFICATE)))
        client.add_event_handler("connection_failed", self._fail_to_connect)
        client.add_event_handler("disconnected", self._lose)
        client.add_event_handler("session_start", self._succeed)
        client.connect(options.host, options.port) if options.host else client.connect()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._ready
        except TimeoutError as error:
            raise PlatformDown(self._explain("no answer")) from error

    def _succeed(self, _event: object) -> None:
        if not self._ready.done():
            self._ready.set_result(None)

    def _fail(self, problem: PlatformError, _event: object = None) -> None:
        if not self._ready.done():
            self._ready.set_exception(problem)

    def _note_refusal(self, _event: object) -> None:
        self._is_refused = True

    def _fail_to_log_in(self, _event: object) -> None:
        """Without TLS, no password was tried."""
        self._fail(PlatformRefused(_WRONG_PASSWORD if self._is_refused else _NO_TLS))

    def _fail_to_connect(self, error: object) -> None:
        if isinstance(error, ssl.SSLCertVerificationError):
            self._fail(PlatformRefused(_WRONG_CERTIFICATE))
        elif self._options.host:  # Without a host, DNS can name several.
            self._fail(PlatformDown(self._explain(type(error).__name__)))

    def _explain(self, problem: str) -> str:
        options = self._options
        where = f"{options.host}:{options.port}" if options.host else f"a server of {options.domain}"
        fix = "Check host and port." if options.host else "Check jid; if its DNS does not name the server, set host."
        return f"There is no connection to {where}: {problem}. {fix}"

    def _lose(self, _event: object) -> None:
        # The library tells a wrong certificate after the connection that was lost by it.
        problem = PlatformDown("The XMPP server closed the connection.")
        asyncio.get_running_loop().call_later(_REASON_SECONDS, self._fail, problem)
        if not self.lost.done():
            self.lost.set_result(None)
        self._read.put_nowait(None)

    async def close(self) -> None:
        client = self._client
        self._ready.cancel()
        client.cancel_connection_attempt()
        if client.transport:
            self._acknowledge()
            await client.disconnect(wait=_CLOSE_SECONDS, ignore_send_queue=True)
        filters = client._run_out_filters  # noqa: SLF001 - the library never ends it
        if filters is not None:
            filters.cancel()
            await asyncio.gather(filters, return_exceptions=True)

    # Reading

    async def messages(self) -> AsyncGenerator[Live]:
        while (live := await self._read.get()) is not None:
            yield live

    def stored(self, live: Live) -> None:
        """Note that a message is stored, so that it is acknowledged."""
        while self._unstored and self._unstored[0] <= live.number:
            self._unstored.popleft()

    def _acknowledge(self) -> None:
        """Acknowledge what is stored, and not yet what was only read (XEP-0198)."""
        if self._client.transport and self._client.plugin["xep_0198"].enabled_in:
            answer = acknowledgements.Ack(self._client)
            answer["h"] = self._unstored[0] - 1 if self._unstored else self._client.plugin["xep_0198"].handled
            self._client.send_raw(str(answer))

    def _take_presence(self, stanza: StanzaBase) -> None:
        self.rooms.take(stanza.xml)

    def _take_message(self, stanza: StanzaBase) -> None:
        message: Element = stanza.xml
        result = message.find(f"{{{MAM}}}result")
        kind = message.get("type")
        name = message.get("id", "")
        if result is not None:
            page = self._pages.get(result.get("queryid", ""))
            if page is not None:
                page.append(message)
        elif kind == "error":
            self._settle(name, _error(message))
        elif kind == GROUP_CHAT and self._is_ours(message):
            given = message.find(f"{{{SID}}}stanza-id")
            self._settle(name, given.get("id", "") if given is not None else "")
        elif has_content(message) and self._read.qsize() >= _MAX_READ:
            self._client.abort()  # Nothing is lost: what is not acknowledged comes again.
        elif has_content(message):
            number = self._client.plugin["xep_0198"].handled
            self._unstored.append(number)
            self._read.put_nowait(Live(message, number, self.rooms.jid_of(message.get("from", ""))))

    def _is_ours(self, message: Element) -> bool:
        room, _, nick = message.get("from", "").partition("/")
        return self.rooms.nicks.get(bare(room)) == nick

    # Sending

    def write(self, element: Element) -> None:
        """Write a stanza. It can be lost with the connection."""
        make = {"message": self._client.Message, "presence": self._client.Presence}[element.tag.partition("}")[2]]
        self._client.send(make(xml=element))

    async def say(self, message: Element) -> str:
        """Send a message and wait until the server has it. Return the id that a room gives it.

        A room sends the message back. Otherwise a ping follows: what the server says against the message comes first.
        """
        if self.lost.done():
            raise PlatformDown("There is no connection to the XMPP server.")
        name = message.attrib["id"]
        future = self._sent[name] = asyncio.get_running_loop().create_future()
        try:
            await request_leaves()
            self.write(message)
            return await self._unless_lost(self._confirm(message, future))
        except (PlatformDown, Refusal) as error:
            raise SendUnclear("The connection was lost while sending.") from error
        finally:
            self._sent.pop(name, None)
            if not future.cancel() and not future.cancelled():
                future.exception()  # It can come beside a lost connection.

    async def _confirm(self, message: Element, future: "asyncio.Future[str]") -> str:
        if message.get("type") == GROUP_CHAT:
            return await future
        await self.ping()
        return future.result() if future.done() else ""

    def _settle(self, name: str, outcome: str | PlatformError) -> None:
        future = self._sent.get(name)
        if future and not future.done():
            future.set_exception(outcome) if isinstance(outcome, PlatformError) else future.set_result(outcome)

    # Asking

    async def ask(self, kind: str, to: str | None, content: Element) -> Element:
        """Send a request and return the answer. Raise Refusal if it is an error, PlatformDown if there is none."""
        asked = self._client.Iq()
        asked["type"] = kind
        if to:
            asked["to"] = to
        asked.xml.append(content)

        async def answer() -> Element:
            try:
                return (await asked.send(timeout=_ANSWER_SECONDS)).xml
            except IqError as error:
                raise Refusal(str(error.condition)) from error
            except IqTimeout as error:
                raise PlatformDown("The XMPP server does not respond.") from error

        return await self._unless_lost(answer())

    async def ask_archive(self, archive: str, query: Element) -> tuple[list[Element], Element]:
        """Ask an archive for a page. Return the messages that it sent, and its last word."""
        name = f"page-{next(self._numbers)}"
        query.set("queryid", name)
        self._pages[name] = []
        try:
            answer = await self.ask("set", archive or None, query)
            here = {archive} if archive else {"", self._options.jid}
            return [each for each in self._pages[name] if each.get("from", "").lower() in here], answer
        finally:
            del self._pages[name]

    async def ping(self) -> None:
        with suppress(Refusal):  # An error is an answer, too.
            await self.ask("get", self.domain, Element(f"{{{PING}}}ping"))

    async def keep_pinging(self) -> None:
        """Raise PlatformDown once the server no longer answers, or a room that we are in has ended."""
        while True:
            await asyncio.wait({self.rooms.left, self.lost}, timeout=_PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if self.rooms.left.done() or self.lost.done():
                raise PlatformDown("A room has ended." if self.rooms.left.done() else "The connection was lost.")
            await self.ping()

    async def _unless_lost(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({task, self.lost}, timeout=_ANSWER_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise PlatformDown("The connection to the XMPP server was lost.")
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@cache
def _tls() -> ssl.SSLContext:
    """Cached: loading the certificates takes longer than a connection."""
    return ssl.create_default_context()


def _local_tls() -> ssl.SSLContext:
    """Do without a valid certificate on loopback, where a server can do without TLS, too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _make_client(options: XmppOptions) -> Any:  # noqa: ANN401 - the library is typed in part
    """Make a client that sends the password over TLS only, unless it stays on this machine."""
    resource = f"palaver-{secrets.token_hex(4)}"
    password = options.password.get_secret_value()
    tls = _local_tls() if options.is_local else _tls()
    client: Any = slixmpp.ClientXMPP(f"{options.jid}/{resource}", password, ssl_context=tls)
    client.auto_subscribe = False
    client.enable_plaintext = options.is_local
    client.enable_starttls = options.port != _TLS_PORT
    client.enable_direct_tls = options.host is None or options.port == _TLS_PORT
    client.plugin["feature_mechanisms"].unencrypted_scram = options.is_local
    client.plugin["feature_mechanisms"].unencrypted_plain = options.is_local
    for plugin in _PLUGINS:
        client.register_plugin(plugin)
    for feature in (CORRECT, OOB, RECEIPTS, STATES):
        client.plugin["xep_0030"].add_feature(feature)
    # A stream is not resumed: a new one takes what was not acknowledged from the archive, or from the server.
    client.plugin["xep_0198"].allow_resume = False
    return client


def _error(message: Element) -> PlatformError:
    error = message.find(f"{{{CLIENT}}}error")
    condition = error_condition(message)
    if error is not None and error.get("type") == "wait":
        return PlatformBusy(_BUSY_SECONDS)
    if condition in _GONE:
        return TargetGone(f"Nobody is there, or the bot cannot write there: {condition}.")
    return SendRefused(f"The XMPP server rejects it: {condition}.")


@asynccontextmanager
async def connected(options: XmppOptions) -> AsyncGenerator[Stream]:
    """Connect and log in; say goodbye at the end."""
    stream = Stream(options)
    try:
        await stream.open()
        yield stream
    finally:
        await stream.close()
