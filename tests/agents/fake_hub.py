"""A hub of models on this machine: it lists the files of a repository, redirects to them, and serves ranges."""

import hashlib
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REVISION = "5b1d0f3e9a"
REPOSITORY = "Qwen/Qwen3-4B-GGUF"
FILE = "Qwen3-4B-Q4_K_M.gguf"


class FakeHub:
    """Serves one file in each repository."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.paths = [FILE, "README.md"]
        self.cuts: list[int] = []
        """After so many bytes the next answers end, one after the other."""
        self.knows_ranges = True
        self.status = 200
        self.url = ""
        self.ranges: list[str | None] = []
        """What was asked for of the file."""
        self.asked, self.goes_on = threading.Event(), threading.Event()
        """Set once a file is asked for; cleared, it sends nothing."""
        self.goes_on.set()
        self.description: Any = None
        """What the hub says of a repository instead of the truth."""

    def describe(self) -> Any:
        blob = {"sha256": hashlib.sha256(self.content).hexdigest(), "size": len(self.content), "pointerSize": 134}
        files = [{"rfilename": path, "size": len(self.content), "lfs": blob} for path in self.paths]
        usual = {"id": REPOSITORY, "sha": REVISION, "siblings": files, "tags": ["gguf", "license:apache-2.0"]}
        return self.description if self.description is not None else usual


@contextmanager
def served(hub: FakeHub) -> Generator[FakeHub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if hub.status != 200:
                self._answer(hub.status, b"")
            elif self.path.startswith("/api/models/"):
                assert self.path.endswith("/revision/main?blobs=true")
                self._answer(200, json.dumps(hub.describe()).encode())
            elif "/resolve/" in self.path:
                assert f"/resolve/{REVISION}/" in self.path
                self.send_response(302)
                self.send_header("Location", f"{hub.url}/cdn/{Path(self.path).name}")
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self._serve()

        def _serve(self) -> None:
            wanted = self.headers["Range"]
            hub.ranges.append(wanted)
            hub.asked.set()
            hub.goes_on.wait()
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and hub.knows_ranges else 0
            body = hub.content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: hub.cuts.pop(0)] if hub.cuts else body)

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            """Say nothing."""

    return Handler
