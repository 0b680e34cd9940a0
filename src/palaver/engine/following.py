"""Options that name a chat by an id it had: they hold under the id it has now, too."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

from palaver.domain.access import Grant
from palaver.domain.ids import decode_id
from palaver.domain.layers import Chat, Layers
from palaver.domain.scope import ProfileRule
from palaver.domain.source import Source
from palaver.domain.turn import account_text
from palaver.engine.options import Options

__all__ = ["Moved", "following", "where_now"]

Moved = Mapping[str, Mapping[str, str]]
"""Of every account, the ids that chats had before, each with the one it has now."""
T = TypeVar("T")
Rule = TypeVar("Rule", Grant, ProfileRule)


class _Move(NamedTuple):
    platform: str
    account: str
    old: str
    new: str


def following(options: Options, moved: Moved) -> Options:
    """What is set under the new id already stays as it is set there."""
    moves = [
        _Move(account.partition(":")[0], decode_id(account.partition(":")[2]), old, new)
        for account, chats in moved.items()
        for old, new in chats.items()
    ]
    if not moves:
        return options
    layers: dict[str, Any] = {
        name: _set_for(cast("Layers[object]", value), moves)
        for name, value in vars(options).items()
        if isinstance(value, Layers)
    }
    profiles, grants = _ruled(options.profiles, moves), _ruled(options.grants, moves)
    return replace(options, profiles=profiles, grants=grants, **layers)


def where_now(source: Source, moved: Moved) -> Source:
    """With its chat under the id it has now."""
    chats = moved.get(account_text(source.platform, source.account))
    chat = chats and source.chat and chats.get(source.chat)
    return replace(source, chat_id=chat) if chat else source


def _set_for(layers: Layers[T], moves: list[_Move]) -> Layers[T]:
    led = {
        Chat(chat.platform, move.new, chat.scope_id): value
        for chat, value in layers.chats.items()
        for move in moves
        if (chat.platform, chat.chat_id) == (move.platform, move.old)
    }
    return replace(layers, chats={**led, **layers.chats})


def _ruled(rules: tuple[Rule, ...], moves: list[_Move]) -> tuple[Rule, ...]:
    led = [
        replace(rule, chat_id=move.new)
        for rule in rules
        for move in moves
        if rule.chat_id == move.old
        and rule.platform in {None, move.platform}
        and (rule.account or move.account) == move.account
    ]
    return (*rules, *(each for each in dict.fromkeys(led) if each not in rules))
