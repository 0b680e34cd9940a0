"""What makes the window an app that can be installed: manifest, service worker, and the page it shows offline."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from palaver.web.files import asset
from palaver.web.pages.common import render, render_text

_SCRIPTS = ("dom.js", "stream.js", "palaver.js", "pages.js", "shell.js")
_FILES = ("palaver.css", "pages.css", *_SCRIPTS, "palaver.svg", "icon-192.png")
"""What the offline page needs."""
_ICONS = {"icon-192.png": "192x192", "icon-512.png": "512x512"}


async def _manifest(_: Request) -> Response:
    icons = [
        {"src": asset(name), "sizes": sizes, "type": "image/png", "purpose": "any maskable"}
        for name, sizes in _ICONS.items()
    ]
    manifest = {
        "name": "Palaver",
        "short_name": "Palaver",
        "description": "Talk to your agent, and watch it at work.",
        "id": "/",
        "start_url": "/chat",
        "scope": "/",
        "display": "standalone",
        "background_color": "#f7f7f4",
        "theme_color": "#1f6a57",
        "icons": icons,
        "shortcuts": [{"name": "Home", "url": "/"}, {"name": "Chat", "url": "/chat"}],
    }
    return JSONResponse(manifest, media_type="application/manifest+json")


async def _service_worker(_: Request) -> Response:
    files = [asset(name) for name in _FILES]
    name = "palaver-" + "-".join(file.split("/")[2] for file in files)
    text = render_text("service-worker.js", name=name, files=files)
    return Response(text, media_type="text/javascript", headers={"cache-control": "no-cache"})


async def _offline(http: Request) -> Response:
    return render(http, "offline.html", None)


ROUTES = (
    Route("/manifest.webmanifest", _manifest),
    Route("/service-worker.js", _service_worker),
    Route("/offline", _offline),
)
