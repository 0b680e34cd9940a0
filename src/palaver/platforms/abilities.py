"""What each platform's adapter can do, known without loading it. A test compares it with the adapters."""

from collections.abc import Mapping
from enum import StrEnum

from palaver.platforms.catalog import PLATFORMS


class Ability(StrEnum):
    """What people see in a chat, in the order of the table."""

    THREADS = "threads"
    EDITS = "edits"
    DRAFTS = "drafts"
    FILES_IN = "files in"
    FILES_OUT = "files out"
    VOICE = "voice"
    BUTTONS = "buttons"
    REACTIONS = "reactions"
    TYPING = "typing"
    MENU = "menu"


_FILES = {Ability.FILES_IN, Ability.FILES_OUT}
_DECLARED: Mapping[str, set[Ability]] = {
    "dingtalk": _FILES,
    "discord": {*_FILES, Ability.EDITS, Ability.BUTTONS, Ability.TYPING, Ability.MENU},
    "email": _FILES,
    "feishu": {*_FILES, Ability.EDITS, Ability.BUTTONS},
    "googlechat": {Ability.FILES_IN, Ability.EDITS, Ability.BUTTONS},
    "homeassistant": {Ability.BUTTONS},
    "imessage": {*_FILES, Ability.TYPING},
    "irc": set(),
    "line": {Ability.FILES_IN, Ability.BUTTONS, Ability.TYPING},
    "matrix": {*_FILES, Ability.EDITS, Ability.TYPING},
    "mattermost": {*_FILES, Ability.EDITS, Ability.TYPING},
    "ntfy": {*_FILES, Ability.BUTTONS},
    "qq": _FILES,
    "signal": {*_FILES, Ability.EDITS, Ability.DRAFTS, Ability.TYPING},
    "slack": {*_FILES, Ability.EDITS, Ability.BUTTONS, Ability.TYPING},
    "sms": {Ability.FILES_IN},
    "teams": {Ability.FILES_IN, Ability.EDITS, Ability.BUTTONS, Ability.TYPING},
    "telegram": {*_FILES, Ability.VOICE, Ability.EDITS, Ability.BUTTONS, Ability.TYPING, Ability.MENU},
    "webhook": set(),
    "wechat": {*_FILES, Ability.VOICE, Ability.BUTTONS, Ability.TYPING},
    "wecom": _FILES,
    "whatsapp": {*_FILES, Ability.VOICE, Ability.BUTTONS, Ability.TYPING},
    "xmpp": {*_FILES, Ability.EDITS, Ability.TYPING},
    "yuanbao": {*_FILES, Ability.TYPING},
}


def abilities_of(platform: str) -> tuple[Ability, ...] | None:
    """Return what a platform's adapter can do; None for a plugin, which only its own pages describe."""
    if platform not in _DECLARED:
        return None
    threads = [Ability.THREADS] if PLATFORMS[platform].has_threads else []
    reactions = [Ability.REACTIONS] if PLATFORMS[platform].has_reactions else []
    has = {*_DECLARED[platform], *threads, *reactions}
    return tuple(ability for ability in Ability if ability in has)
