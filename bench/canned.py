"""A server of a platform that always says the same, in a thread of its own: what it takes is not counted."""

import asyncio
import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

__all__ = ["Answers", "serving"]

Answers = Callable[[str], tuple[int, object] | None]
"""Given the path of a request, with `#METHOD` behind it for JSON-RPC: status and JSON, or None to say nothing."""


@contextmanager
def serving(answers: Answers) -> Generator[str]:
    """Gives its address."""
    loop, ports = asyncio.new_event_loop(), list[int]()
    ready, over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _talk(reader, writer, answers)

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()
        await over.wait()
        server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: Answers) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            sizes = [line.partition(":")[2] for line in head if line.lower().startswith("content-length:")]
            content = await reader.readexactly(int(sizes[0]) if sizes else 0)
            said = answers(head[0].split(" ")[1] + _method(content))
            if said is None:
                await asyncio.Event().wait()
                return
            body = json.dumps(said[1]).encode()
            facts = f"content-type: application/json\r\ncontent-length: {len(body)}"
            writer.write(f"HTTP/1.1 {said[0]} -\r\n{facts}\r\n\r\n".encode() + body)
    except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
        pass  # nobody waits for this task
    finally:
        writer.close()


def _method(content: bytes) -> str:
    return f"#{json.loads(content)['method']}" if b'"jsonrpc"' in content else ""
