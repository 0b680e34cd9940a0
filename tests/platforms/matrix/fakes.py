"""A room on a real homeserver: our account in it, and a person with a client of their own."""

import io
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from nio import AsyncClient, AsyncClientConfig
from nio.api import MessageDirection
from nio.crypto import decrypt_attachment
from nio.responses import (
    MemoryDownloadResponse,
    RoomCreateResponse,
    RoomMessagesResponse,
    RoomPutStateResponse,
    RoomRedactResponse,
    RoomSendResponse,
    SyncResponse,
    UploadResponse,
)
from nio.store import SqliteStore

from palaver.model.attachment import NewFile
from palaver.model.source import GROUP, Source
from palaver.platforms.matrix.adapter import MatrixAdapter
from palaver.platforms.matrix.client import Options
from palaver.testkit.fake_server import Shown
from tests.platforms.matrix.homeserver import Account, Homeserver, Stage
from tests.platforms.matrix.proxy import Proxy, proxied

__all__ = ["ACCOUNT", "FakeMatrix", "Person", "fake_matrix", "present"]

ACCOUNT = "helper"


class Person:
    """Somebody with matrix-nio in front of them."""

    def __init__(self, home: Homeserver, account: Account, keys: Path | None = None) -> None:
        self._home = home
        self.user_id = account.user_id
        config = AsyncClientConfig(max_timeouts=3, encryption_enabled=keys is not None, store=SqliteStore)
        self.client = AsyncClient(home.url, account.user_id, account.device_id, str(keys or ""), config)
        self.client.restore_login(account.user_id, account.device_id, account.token)
        self._names: dict[str, str] = {}

    async def makes_room(
        self, *invited: str, name: str | None = "Dev", encrypted: bool = False, direct: bool = False
    ) -> str:
        state = [{"type": "m.room.encryption", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}] if encrypted else []
        made = await self.client.room_create(name=name, invite=invited, initial_state=state, is_direct=direct)
        assert isinstance(made, RoomCreateResponse), made
        return made.room_id

    async def is_called(self, room_id: str, name: str) -> None:
        if self._names.get(room_id) != name:
            content = {"membership": "join", "displayname": name}
            put = await self.client.room_put_state(room_id, "m.room.member", content, self.user_id)
            assert isinstance(put, RoomPutStateResponse), put
            self._names[room_id] = name

    async def says(self, room_id: str, text: str, **more: Any) -> str:
        return await self.sends(room_id, {"msgtype": "m.text", "body": text, **more})

    async def sends(self, room_id: str, content: dict[str, Any], kind: str = "m.room.message") -> str:
        if self.client.olm:
            await self.looks()
        sent = await self.client.room_send(room_id, kind, content, ignore_unverified_devices=True)
        assert isinstance(sent, RoomSendResponse), sent
        return sent.event_id

    async def gives_out_broken_keys(self) -> None:
        assert self.client.olm
        keys = self.client.olm.share_keys()
        for name in keys["one_time_keys"]:
            broken = {"key": "none"}
            name_of_key = f"ed25519:{self.client.device_id}"
            signature = self.client.olm.sign_json(broken)
            keys["one_time_keys"][name] = {**broken, "signatures": {self.user_id: {name_of_key: signature}}}
        self._home.ask("POST", "/_matrix/client/v3/keys/upload", keys, self.client.access_token)

    async def encrypts(self, room_id: str, event: dict[str, Any]) -> None:
        """With anything in it; the keys were given to everybody before."""
        assert self.client.olm
        content = self.client.olm.group_encrypt(room_id, event)
        path = f"/_matrix/client/v3/rooms/{room_id}/send/m.room.encrypted/{uuid4()}"
        self._home.ask("PUT", path, content, self.client.access_token)

    async def redacts(self, room_id: str, event_id: str) -> None:
        assert isinstance(await self.client.room_redact(room_id, event_id), RoomRedactResponse)

    async def looks(self) -> None:
        """As a client does all the time: anything that is new, keys among it."""
        synced = await self.client.sync(0, full_state=not self.client.next_batch)
        assert isinstance(synced, SyncResponse), synced
        if self.client.should_upload_keys:
            await self.client.keys_upload()
        if self.client.should_query_keys:
            await self.client.keys_query()

    async def sees(self, room_id: str) -> list[dict[str, Any]]:
        """Every event in the room, oldest first."""
        if self.client.olm:
            await self.looks()
        seen = await self.client.room_messages(room_id, direction=MessageDirection.back, limit=500)
        assert isinstance(seen, RoomMessagesResponse), seen
        return [event.source for event in reversed(seen.chunk)]

    async def uploads(self, file: NewFile, *, encrypt: bool) -> dict[str, Any]:
        answer, keyed = await self.client.upload(
            io.BytesIO(file.content), file.media_type, encrypt=encrypt, filesize=len(file.content)
        )
        assert isinstance(answer, UploadResponse), answer
        return {"file": {**keyed, "url": answer.content_uri}} if keyed else {"url": answer.content_uri}

    async def downloads(self, content: dict[str, Any]) -> bytes:
        keyed = content.get("file")
        answer = await self.client.download(keyed["url"] if keyed else content["url"])  # pyright: ignore[reportUnknownMemberType]
        assert isinstance(answer, MemoryDownloadResponse), answer
        body = answer.body
        assert isinstance(body, bytes)
        return decrypt_attachment(body, keyed["key"]["k"], keyed["hashes"]["sha256"], keyed["iv"]) if keyed else body


@asynccontextmanager
async def present(home: Homeserver, account: Account, keys: Path | None = None) -> AsyncGenerator[Person]:
    if keys:
        keys.mkdir(exist_ok=True)  # noqa: ASYNC240 - quick
    person = Person(home, account, keys)
    try:
        yield person
    finally:
        await person.client.close()
        if person.client.store:
            person.client.store.database.close()


class FakeMatrix:
    def __init__(
        self, home: Homeserver, stage: Stage, proxy: Proxy, *, options: Options, person: Person, begun: str
    ) -> None:
        self.home = home
        self.stage = stage
        self.proxy = proxy
        self.options = options
        self.person = person
        self.chat_id = stage.room_id
        self.thread_id: str | None = begun
        self._begun: str | None = begun
        self._is_limited = self._is_closed = False

    def adapter(self) -> MatrixAdapter:
        return MatrixAdapter(ACCOUNT, self.options)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        await self.is_heard()
        await self.person.is_called(self.chat_id, name)
        relation = {"rel_type": "m.thread", "event_id": thread_id, "is_falling_back": True} if thread_id else {}
        more = {"m.relates_to": {**relation, "m.in_reply_to": {"event_id": thread_id}}} if relation else {}
        said = await self.person.says(self.chat_id, text, **more)
        return self.source(said, thread_id)

    async def is_heard(self) -> None:
        """What is said before an account has ever listened is past."""
        await self.proxy.answered("/sync")
        if self.options.keys:
            await self.proxy.answered("/keys/upload")

    def source(self, message_id: str, thread_id: str | None = None) -> Source:
        return Source(
            platform="matrix",
            account=ACCOUNT,
            chat_kind=GROUP,
            chat_id=self.chat_id,
            thread_id=thread_id,
            user_id=self.person.user_id,
            message_id=message_id,
        )

    async def shown(self) -> list[Shown]:
        """As a client shows it: edits in the place of what they change, and in a thread also what it began with."""
        events = await self._events()
        roots = {_relation(event).get("event_id") for event in events if _relation(event).get("rel_type") == "m.thread"}
        shown = dict[str, Shown]()
        for event in filter(self._is_ours, events):
            name, relation, content = str(event["event_id"]), _relation(event), event["content"]
            if relation.get("rel_type") == "m.replace":
                name = str(relation["event_id"])
                shown[name] = replace(shown[name], text=content["m.new_content"]["body"])
                continue
            begun = name if name in roots else None
            thread = str(relation["event_id"]) if relation.get("rel_type") == "m.thread" else begun
            shown[name] = Shown(chat_id=self.chat_id, text=content["body"], thread_id=thread)
        return list(shown.values())

    async def _events(self) -> list[dict[str, Any]]:
        events = await self.person.sees(self.chat_id)
        ids = [event["event_id"] for event in events]
        return events[ids.index(self._begun) + 1 :] if self._begun else events

    def _is_ours(self, event: dict[str, Any]) -> bool:
        return event["sender"] == self.options.user_id and event["type"] == "m.room.message"

    async def cut(self) -> None:
        self.proxy.cut()

    async def limit_rate(self) -> None:
        self._is_limited = True
        self.home.limit(self.options.user_id)

    async def lose_send(self, *, shown: bool) -> None:
        self.proxy.lose_send(shown=shown)

    async def close_chat(self) -> None:
        self._is_closed = True
        await self.person.client.room_kick(self.chat_id, self.options.user_id)

    async def tidy(self) -> None:
        """As it was for anyone who comes next."""
        if self._is_limited:
            self.home.unlimit(self.options.user_id)
        if self._is_closed:
            await self.person.client.room_invite(self.chat_id, self.options.user_id)
            self.home.join(self.chat_id, self.stage.bot)

    @property
    def is_spent(self) -> bool:
        """Nobody can use its room any more."""
        return self._begun is None

    async def mention(self, text: str) -> Source:
        meant = {"user_ids": [self.options.user_id]}
        return self.source(
            await self.person.says(self.chat_id, f"{self.options.user_id}: {text}", **{"m.mentions": meant})
        )

    async def answer(self, receipt: str, text: str) -> Source:
        relation = {"m.in_reply_to": {"event_id": receipt}}
        return self.source(await self.person.says(self.chat_id, text, **{"m.relates_to": relation}))

    async def react(self, receipt: str, sign: str, *, removed: bool = False) -> Source:
        if removed:
            await self.person.redacts(self.chat_id, self._reaction)
        else:
            relation = {"rel_type": "m.annotation", "event_id": receipt, "key": f"{sign}\ufe0f"}
            self._reaction = await self.person.sends(self.chat_id, {"m.relates_to": relation}, "m.reaction")
        return self.source(receipt)

    async def edit(self, said: Source, text: str) -> None:
        content = {
            "msgtype": "m.text",
            "body": f"* {text}",
            "m.new_content": {"msgtype": "m.text", "body": text},
            "m.relates_to": {"rel_type": "m.replace", "event_id": said.message_id},
        }
        await self.person.sends(self.chat_id, content)

    async def delete(self, said: Source) -> None:
        await self.person.redacts(self.chat_id, said.message_id or "")

    async def send_file(self, text: str, files: Sequence[NewFile]) -> Source:
        """One message for each file."""
        await self.is_heard()
        sent = list[str]()
        for file in files:
            content = {
                "msgtype": "m.file",
                "body": file.name if sent else text,
                "filename": file.name,
                "info": {"mimetype": file.media_type, "size": len(file.content)},
            }
            where = await self.person.uploads(file, encrypt=self.stage.encrypted)
            sent.append(await self.person.sends(self.chat_id, content | where))
        return self.source(sent[0])

    async def shown_files(self) -> Sequence[NewFile]:
        events = filter(self._is_ours, await self._events())
        contents = [event["content"] for event in events if "info" in event["content"]]
        return [
            NewFile(content["filename"], await self.person.downloads(content), content["info"]["mimetype"])
            for content in contents
        ]


def _relation(event: dict[str, Any]) -> dict[str, Any]:
    return event.get("content", {}).get("m.relates_to", {})


@asynccontextmanager
async def fake_matrix(
    home: Homeserver, folder: Path, stage: Stage | None = None, **options: Any
) -> AsyncGenerator[FakeMatrix]:
    """On a stage that others have used only what happens from now on is seen."""
    stage = stage or home.stage()
    keys, ours = (folder / "person", folder / "ours") if stage.encrypted else (None, None)
    async with present(home, stage.human, keys) as person, proxied(home.port) as (proxy, url):
        given = {"homeserver": url, "user_id": stage.bot.user_id, "access_token": stage.bot.token, "keys": ours}
        begun = await person.says(stage.room_id, "this is what the thread is about")
        fake = FakeMatrix(
            home, stage, proxy, options=Options.model_validate(given | options), person=person, begun=begun
        )
        try:
            yield fake
        finally:
            await fake.tidy()
