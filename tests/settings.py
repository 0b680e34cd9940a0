"""Settings of an engine in a test, by their names; limits can be out of the bounds that a configuration has."""

from dataclasses import replace
from typing import Any

from palaver.engine.settings import Settings
from palaver.settings.engine import EngineConfig
from palaver.settings.limits import LimitsConfig

__all__ = ["change", "settings"]


def settings(**named: Any) -> Settings:
    return change(Settings(), **named)


def change(given: Settings, **named: Any) -> Settings:
    rules = Settings.__dataclass_fields__
    limits = {name: named[name] for name in LimitsConfig.model_fields if name in named}
    sections = {name: named[name] for name in EngineConfig.model_fields if name in named}
    assert not named.keys() - rules.keys() - limits.keys() - sections.keys()
    new_limits = given.limits.model_copy(update=limits)
    config = named.get("config", given.config).model_copy(update={"limits": new_limits, **sections})
    return replace(given, **{name: named[name] for name in rules if name in named} | {"config": config})
