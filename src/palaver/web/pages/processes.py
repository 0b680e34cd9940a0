"""Pages for background processes: a list, and one process with its output as it comes."""

import asyncio

from starlette.responses import Response

from palaver.processes.output import last_lines
from palaver.processes.pages import read_page
from palaver.web.api.processes import find_process, kill_process
from palaver.web.pages.common import MAX_SHOWN_TEXT, answer_action, show_page
from palaver.web.routes import WebRequest, action, page

_MAX_PROCESSES = 200
_TAIL_BYTES = 200_000


@page("/processes", owner_only=True)
async def processes(request: WebRequest) -> Response:
    store = request.store
    found = await request.read(lambda who: store.processes.list_visible(who, limit=_MAX_PROCESSES))
    return show_page(request, "processes.html", processes=found)


@page("/processes/{name}", owner_only=True)
async def process(request: WebRequest) -> Response:
    found, manager = await find_process(request), request.services.processes
    if not manager.is_here(found):
        return show_page(request, "process.html", process=found, output=None, is_cut=False)
    last = await asyncio.to_thread(read_page, manager.directory(found), None, _TAIL_BYTES)
    text = last_lines(last.text, MAX_SHOWN_TEXT)
    return show_page(request, "process.html", process=found, output=text, is_cut=bool(last.start))


@action("/processes/{name}/kill", owner_only=True)
async def kill(request: WebRequest) -> Response:
    killed = await kill_process.call(request, None, None)
    notice = "Killing it." if getattr(killed, "done", False) else "It has already ended."
    return answer_action(request, notice, f"/processes/{request.path['name']}")


ROUTES = (processes, process, kill)
