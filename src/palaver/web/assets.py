"""Assets: the few files that pages need, each under a name that changes with its content."""

import hashlib
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

__all__ = ["asset", "routes"]

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".png": "image/png"}
_FOR_EVER = "public, max-age=31536000, immutable"


@cache
def asset(name: str) -> str:
    """The address of a file, for templates: `asset("palaver.css")`."""
    digest = hashlib.sha256((_FOLDER / name).read_bytes()).hexdigest()[:12]
    return f"/static/{digest}/{name}"


def routes() -> list[Route]:
    return [Route("/static/{digest}/{name}", _serve)]


async def _serve(request: Request) -> Response:
    name = request.path_params["name"]
    known = {path.name: path for path in _FOLDER.iterdir() if path.suffix in _TYPES}
    if name not in known:
        return PlainTextResponse("There is no such file.\n", status_code=404)
    is_current = asset(name).split("/")[2] == request.path_params["digest"]
    return FileResponse(
        known[name],
        media_type=_TYPES[known[name].suffix],
        headers={"cache-control": _FOR_EVER if is_current else "no-cache"},
    )
