"""An adapter for a platform made of files: people append lines to `in.jsonl`, we append lines to `out.jsonl`."""  # noqa: INP001

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel

from palaver.domain.label import Label
from palaver.domain.platform import Platform
from palaver.domain.source import Labels, Source, Trust
from palaver.domain.turn import Inbound, Outbound
from palaver.ports.adapter import Inlet, Limits, PlatformDown, TargetGone

__all__ = ["FolderAdapter"]


class Options(BaseModel):
    folder: Path


class FolderAdapter:
    platform = Platform(name="folder", title="Folder")
    options = Options
    limits = Limits(text=1000)

    def __init__(self, folder: Path, account: str | None = None) -> None:
        self.account = account
        self._folder = folder

    @classmethod
    def make(cls, account: str, options: Options) -> "FolderAdapter":
        return cls(options.folder, account)

    async def run(self, inlet: Inlet) -> None:
        """How far we have read is kept with what we have read, so it is the same after a restart."""
        read = int(await inlet.position() or 0)
        await inlet.connected()
        while True:
            for line in self._lines_after(read):
                await inlet.receive(parse(line, read, self.account), Trust())
                read += len(line)
                await inlet.keep_position(str(read))
            await asyncio.sleep(0.01)

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """The receipt is the place of the line in the file."""
        if outbound.chat_id not in (self._folder / "chats.txt").read_text().splitlines():
            raise TargetGone(f"there is no chat {outbound.chat_id}")
        line = {"chat": outbound.chat_id, "text": outbound.text, "key": idempotency_key}
        with (self._folder / "out.jsonl").open("ab") as out:
            place = out.tell()
            out.write(json.dumps(line).encode() + b"\n")
        return str(place)

    def _lines_after(self, place: int) -> list[bytes]:
        """Whole lines only: somebody may be in the middle of writing one."""
        try:
            with (self._folder / "in.jsonl").open("rb") as file:
                file.seek(place)
                return [line for line in file if line.endswith(b"\n")]
        except OSError as error:
            raise PlatformDown(f"the folder cannot be read: {error}") from error


def parse(line: bytes, place: int, account: str | None) -> Inbound:
    """From payload to message. Ids go into the source, names into the labels."""
    said = json.loads(line)
    source = Source(
        platform="folder", account=account, chat_id=said["chat"], user_id=said["user"], message_id=str(place)
    )
    at = datetime.fromtimestamp(said["at"], UTC)
    return Inbound(source=source, text=said["text"], at=at, labels=Labels(user=Label(said["name"])))
