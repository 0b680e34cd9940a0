"""What the engine takes of the configuration as it is written."""

from pydantic import Field

from palaver.settings.limits import LimitsConfig
from palaver.settings.types import Section


class PrivacyConfig(Section):
    pseudonyms: bool = Field(
        default=False,
        description="Whether the agent sees pseudonyms instead of ids and phone numbers, where it needs no ids.",
    )


class EngineConfig(Section):
    """The sections that the engine takes. Read them when you need them: a reload replaces them."""

    acknowledges: bool = Field(default=True, description="Whether to tell people that the agent is still answering.")
    titles: bool = Field(default=True, description="Whether agents title conversations that have no title.")
    privacy: PrivacyConfig = Field(default=PrivacyConfig(), description="What the agent learns about people.")
    limits: LimitsConfig = Field(default=LimitsConfig(), description="Limits on time, number and size.")
