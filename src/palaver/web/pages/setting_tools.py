"""The settings page for tools: which ones each role has, which need approval, and the MCP servers."""

import shlex

from starlette.responses import Response

from palaver.config.editor import Edit
from palaver.config.secrets import mask_secrets
from palaver.model.errors import BadArgument
from palaver.model.tools import ALL_TOOLS, ApprovalMode
from palaver.web.pages.common import read_stripped_form
from palaver.web.pages.settings import SECTIONS, save_edits, show_settings
from palaver.web.routes import WebRequest, action, page

_BACK = "/settings/tools"
_MODES = {
    ApprovalMode.ASK.value: "ask a person first",
    ApprovalMode.ALWAYS.value: "use it without asking",
    ApprovalMode.NEVER.value: "never use it",
}


@page("/settings/tools", owner_only=True)
async def tools(request: WebRequest) -> Response:
    names = sorted(frozenset[str]().union(*request.services.engine.settings.tools.roles.values()) - ALL_TOOLS)
    return await show_settings(
        request, SECTIONS["tools"], "settings/tools.html", modes=_MODES, mask=mask_secrets, tool_names=names
    )


@action("/settings/tools/approvals", owner_only=True)
async def set_approval(request: WebRequest) -> Response:
    form = await read_stripped_form(request)
    mode = form.get("mode", "")
    return await save_edits(request, [Edit(("tools", "allowed", _name(form, "tool")), mode or None)], _BACK)


@action("/settings/tools/servers", owner_only=True)
async def add_server(request: WebRequest) -> Response:
    form = await read_stripped_form(request)
    command, url, variable = form.get("command", ""), form.get("url", ""), form.get("variable", "")
    server: dict[str, str | list[str] | dict[str, str]] = {}
    if command:
        try:
            program, *args = shlex.split(command)
        except ValueError as error:
            raise BadArgument(
                "This is not a command:", found=command, allowed="a program and its arguments", example="notes serve"
            ) from error
        server = {"command": program, **({"args": args} if args else {})}
        if variable:
            server["environment"] = {variable: f"${{{variable}}}"}
    elif url:
        server = {"url": url, **({"headers": {"Authorization": f"Bearer ${{{variable}}}"}} if variable else {})}
    else:
        raise BadArgument(
            "A server needs a command or an address.", found="", allowed="one of them", example="notes-server serve"
        )
    return await save_edits(request, [Edit(("tools", "servers", _name(form, "name")), server)], _BACK)


@action("/settings/tools/servers/{name}/remove", owner_only=True)
async def remove_server(request: WebRequest) -> Response:
    return await save_edits(request, [Edit(("tools", "servers", request.path["name"]), None)], _BACK)


def _name(form: dict[str, str], field: str) -> str:
    if not form.get(field):
        raise BadArgument("A name is missing.", found="", allowed="a name", example="notes")
    return form[field]


ROUTES = (tools, set_approval, add_server, remove_server)
