"""The settings page for platform accounts: the same steps as `palaver setup`, tested before they are saved."""

from dataclasses import replace
from functools import partial
from urllib.parse import urlencode

from starlette.responses import Response

from palaver.config.account_draft import AccountDraft, check_owner, start_draft, validate_options, without_secrets
from palaver.config.editor import Edit
from palaver.model.access import AccessRole, Grant
from palaver.model.errors import BadArgument, InvalidInput
from palaver.platforms.plugins import load_factory, offered_platforms
from palaver.protocols.installation import MissingPackages, find_installation
from palaver.web.pages.common import answer_action, query_value, read_stripped_form
from palaver.web.pages.settings import SECTIONS, require_settings, save_edits, show_settings
from palaver.web.routes import WebRequest, action, page
from palaver.web.settings import Settings

_BACK = "/settings/accounts"


@page("/settings/accounts", owner_only=True)
async def accounts(request: WebRequest) -> Response:
    health = await request.store.read(request.store.accounts.list_health(request.now))
    return await show_settings(
        request,
        SECTIONS["accounts"],
        "settings/accounts.html",
        health={(each.platform, each.account): each for each in health},
        added=_added(query_value(request, "added")),
        has_owner=bool(query_value(request, "owner")),
        installed=offered_platforms(),
    )


@page("/settings/accounts/{platform}", owner_only=True)
async def new_account(request: WebRequest) -> Response:
    try:
        draft = start_draft(request.path["platform"], query_value(request, "account") or "main")
    except MissingPackages as missing:
        return await _offer_install(request, missing)
    settings = request.services.settings
    folder = settings.file.path.parent if settings else None
    return await show_settings(
        request,
        SECTIONS["accounts"],
        "settings/account.html",
        draft=draft,
        guide=draft.guide,
        defaults={each.option: draft.default_answer(each, folder) for each in draft.guide.questions} if folder else {},
        title=draft.adapter.platform.title,
        label=_label,
        # The page of an installation that is over by now fetches its live part.
        is_fragment="x-fragment" in request.http.headers,
    )


async def _offer_install(request: WebRequest, missing: MissingPackages) -> Response:
    settings = request.services.settings
    return await show_settings(
        request,
        SECTIONS["accounts"],
        "settings/install.html",
        missing=missing,
        platform=request.path["platform"],
        obstacle=find_installation().obstacle,
        installing=settings.works.get(missing.extra) if settings else None,
    )


@action("/settings/accounts/{platform}/install", owner_only=True)
async def install_packages(request: WebRequest) -> Response:
    """Install what a platform needs, and go on with its questions."""
    settings, platform = require_settings(request), request.path["platform"]
    back = f"{_BACK}/{platform}"
    try:
        load_factory(platform)
    except MissingPackages as missing:
        hint = partial(request.services.hub.hint, "platforms")
        await settings.start(missing.extra, partial(settings.install, missing), hint)
    return answer_action(request, "", back, moved=True)


@action("/settings/accounts/{platform}", owner_only=True)
async def save_account(request: WebRequest) -> Response:
    """Test an account and write it, with its secrets in files of their own."""
    settings = require_settings(request)
    form = await read_stripped_form(request)
    draft = start_draft(request.path["platform"], form.get("account") or "main")
    owner = check_owner(draft, form.get("owner", ""))
    _take_answers(draft, form, settings)
    draft = await _tested(draft, settings)
    saved = await settings.change([Edit(draft.path, draft.fields)], draft.files)
    if owner:
        grant = Grant(role=AccessRole.OWNER, platform=draft.platform, user_id=owner)
        await request.write(lambda who: request.store.grants.add(grant, request.now, by=who.name))
    request.services.hub.hint("platforms", "people")
    known_as = f" as {draft.known_as}" if draft.known_as else ""
    added = {"added": f"{draft.platform}:{draft.account}", **({"owner": "1"} if owner else {})}
    return answer_action(
        request, f"Added {draft.platform}:{draft.account}{known_as}. {saved}", f"{_BACK}?{urlencode(added)}", moved=True
    )


@action("/settings/accounts/{platform}/{account}/remove", owner_only=True)
async def remove_account(request: WebRequest) -> Response:
    path = ("platforms", request.path["platform"], "accounts", request.path["account"])
    return await save_edits(request, [Edit(path, None)], _BACK)


def _added(name: str) -> AccountDraft | None:
    """Return the account that was just added, to say what is left to do for it."""
    platform, _, account = name.partition(":")
    try:
        return start_draft(platform, account) if platform and account else None
    except InvalidInput:
        return None


def _label(prompt: str) -> str:
    """Return a question of the terminal as the label of a field, which is hidden anyway where it has to be."""
    return prompt.replace(" (hidden while you type)", "").rstrip(":").strip()


def _take_answers(draft: AccountDraft, form: dict[str, str], settings: Settings) -> None:
    """Answer the questions in their order: an answer can make others needless."""
    for question in draft.open_questions():
        usual = question.generate() if question.generate else draft.default_answer(question, settings.file.path.parent)
        text = form.get(question.option) or usual
        if text:
            draft.store(question.option, text)
        elif question.required:
            raise BadArgument(f"{_label(question.prompt)} is missing.", found="", allowed="an answer", example="…")


async def _tested(draft: AccountDraft, settings: Settings) -> AccountDraft:
    validate_options(draft, draft.options)
    answer = await settings.ask_account(draft.platform, draft.account, draft.options)
    if not answer.ok:
        words = without_secrets(answer.words, draft).rstrip(".")
        raise BadArgument(
            f"{draft.adapter.platform.title} says: {words}. Nothing was saved.",
            found="",
            allowed="an account that the platform accepts",
            example="a new token",
            fix="Check the answers.",
        )
    return replace(draft, known_as=answer.words if answer.was_asked else "")


ROUTES = (accounts, new_account, install_packages, save_account, remove_account)
