"""The owner is one person from the start: at the terminal and in the web window."""

from datetime import datetime

from palaver.config.model import Config
from palaver.db.transaction import Statements, transaction
from palaver.model.key import DmScope
from palaver.model.source import MAIN, Source, identity_text
from palaver.store.people import links

_OWNER = "owner"
_PLATFORMS = ("terminal", "web")


@transaction
def link_owner(config: Config, now: datetime) -> Statements[None]:
    """Link the owner's two accounts as `/link` would, also in a store that knows them apart. An unlink stays."""
    terminal, web = (identity_text(platform, _OWNER) for platform in _PLATFORMS)
    if not (yield from links.link_once(terminal, web, now, by="gateway")):
        return
    scopes = config.settings().scopes
    for profile in (MAIN, *config.profiles):
        chats = [Source(platform=name, user_id=_OWNER, profile=profile) for name in _PLATFORMS]
        if all(scopes.find(chat).dm is DmScope.PER_PERSON for chat in chats):
            yield from links.continue_last(terminal, profile, now)
