"""A server that does wrong on purpose, without any library so that it starts at once."""

import json
import os
import sys
import time
from typing import Any

SCHEMA = {"type": "object"}
NAMES = (
    "crash",
    "hang",
    "huge",
    "malformed",
    "fails",
    "stuck",
    "picture",
    "steps/ing out",
    "endless",
    "many",
    "objects",
)


def answer(number: object, result: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}) + "\n")
    sys.stdout.flush()


def text(words: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], "isError": is_error}


def use(number: object, name: str) -> None:
    match name:
        case "crash":
            sys.exit(3)
        case "hang" | "stuck":
            time.sleep(60 if name == "stuck" else 0)
        case "huge" | "endless":
            answer(number, text("x" * (3_000_000 if name == "huge" else 20_000_000)))
        case "malformed":
            sys.stdout.write("this is no JSON\n{}\n\n")
            answer(number, {"content": "not a list"})
        case "fails":
            answer(number, text("no such file", is_error=True))
        case "many":
            answer(number, {"content": [{"type": "text", "text": "x"}] * 1_001})
        case "objects":
            found = [{"id": each, "of": "another call"} for each in range(60_000)]
            said = json.dumps({"jsonrpc": "2.0", "result": {"structuredContent": found}, "id": number})
            sys.stdout.write(said + "\n")
            sys.stdout.flush()
        case "picture":
            answer(number, {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]})
        case _:
            answer(number, text("stepped out"))


for line in sys.stdin:
    said = json.loads(line)
    match said.get("method"):
        case "initialize":
            version = said["params"]["protocolVersion"]
            about = {"name": "bad", "version": "1"}
            answer(said["id"], {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about})
        case "tools/list" if os.environ.pop("REFUSES_FIRST", ""):
            error = {"code": -32603, "message": "not yet"}
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": said["id"], "error": error}) + "\n")
            sys.stdout.flush()
        case "tools/list" if os.environ.pop("CHANGES_FIRST", ""):
            sys.stdout.write('{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}\n')
            answer(said["id"], {"tools": []})
        case "tools/list":
            tools = [{"name": name, "description": "d" * 5_000, "inputSchema": SCHEMA} for name in NAMES]
            tools.append({"name": "as_task", "inputSchema": SCHEMA, "execution": {"taskSupport": "required"}})
            answer(said["id"], {"tools": tools})
        case "tools/call":
            use(said["id"], said["params"]["name"])
        case _:
            pass
