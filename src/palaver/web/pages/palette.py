"""The conversations that the command palette finds: the last ones, or those with words that begin like yours."""

from collections.abc import Iterable

from starlette.responses import JSONResponse, Response

from palaver.db.transaction import Statements, transaction
from palaver.model.session import Principal, Session
from palaver.model.text import escape_invisible, one_line
from palaver.store.people.api_tokens import Right
from palaver.store.status.chat_list import ListedChat
from palaver.store.status.session_list import CONVERSATIONS
from palaver.web.chat_rooms import platform_title
from palaver.web.pages.common import query_value
from palaver.web.routes import WebRequest, page

_MAX_SHOWN, _MAX_HITS, _MAX_QUERY, _MAX_TITLE = 8, 40, 200, 100


@page("/palette")
async def find(request: WebRequest) -> Response:
    query = query_value(request, "q")[:_MAX_QUERY]
    sessions = await _search(request, query) if query else None

    @transaction
    def read(principal: Principal) -> Statements[list[ListedChat]]:
        found = sessions
        if found is None:
            page = yield from request.store.session_list.list_sessions(
                principal, wanted=CONVERSATIONS, limit=_MAX_SHOWN
            )
            found = [preview.session for preview in page.previews]
        return (yield from request.store.chat_list.describe(request.caller.identity, found))

    chats = (await request.read(read))[:_MAX_SHOWN]
    return JSONResponse([_shown(request, chat) for chat in chats])


async def _search(request: WebRequest, query: str) -> Iterable[Session]:
    hits = await request.search_beginnings(await request.principal(), query, _MAX_HITS)
    return {hit.session.id: hit.session for hit in hits}.values()


def _shown(request: WebRequest, chat: ListedChat) -> dict[str, str]:
    has_chat = request.caller.has(Right.CHAT) and request.caller.web_user is not None
    folder = "/chat/s" if has_chat else "/sessions"
    return {
        "title": escape_invisible(one_line(chat.title, _MAX_TITLE)),
        "path": f"{folder}/{chat.session.id}",
        "from": platform_title(request, chat.session) or "Web chat",
    }


ROUTES = (find,)
