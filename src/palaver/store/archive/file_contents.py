"""The contents of files in an archive: each once, in a line before the first session that has it."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from palaver.model.attachment import Attachment
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.records import file_digests, json_text


@dataclass
class FileContents:
    blobs: BlobStore
    missing: set[str] = field(default_factory=set[str])
    """Hashes of files whose content is not on this machine."""
    _written: set[str] = field(default_factory=set[str])

    async def lines(self, files: Iterable[Attachment]) -> AsyncIterator[bytes]:
        """Yield a line for each file that has none yet."""
        for sha256 in file_digests(tuple(files)):
            if sha256 in self._written:
                continue
            self._written.add(sha256)
            async with self.blobs.reading(sha256) as place:
                if place is None:
                    self.missing.add(sha256)
                    continue
                content = await asyncio.to_thread(place.read_bytes)
            line = {"file": {"sha256": sha256, "content": base64.b64encode(content).decode()}}
            yield json_text(line).encode() + b"\n"
