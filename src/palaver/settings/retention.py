"""Retention: how long what is stored stays."""

from pydantic import Field

from palaver.model.retention import RetentionClass, RetentionLimit, RetentionRules
from palaver.settings.types import Count, DaysOrForever, Section, Size

_DEFAULT = RetentionRules()


class RetentionLimitConfig(Section):
    age: DaysOrForever = Field(default=None, description="Delete what nobody has used for this long.")
    count: Count = Field(default=None, description="Keep this many, the newest.")
    size: Size = Field(default=None, description="Keep this much, the newest.")


def _limit(kind: RetentionClass) -> RetentionLimitConfig:
    limit = _DEFAULT.of(kind)
    return RetentionLimitConfig(age=limit.age, count=limit.count, size=limit.size)


class AgedLimitConfig(RetentionLimitConfig):
    """For what does not stay forever unless you say so."""

    age: DaysOrForever = Field(default=_DEFAULT.observed.age, description="Delete what is older than this.")


class RetentionConfig(Section):
    chat: RetentionLimitConfig = Field(
        default=_limit(RetentionClass.CHAT), description="Conversations with people that nobody uses any more."
    )
    cron: RetentionLimitConfig = Field(
        default=_limit(RetentionClass.CRON), description="Conversations of scheduled jobs."
    )
    api: RetentionLimitConfig = Field(default=_limit(RetentionClass.API), description="Conversations of programs.")
    observed: AgedLimitConfig = Field(default=AgedLimitConfig(), description="What the agent overheard in groups.")
    attachments: RetentionLimitConfig = Field(
        default=_limit(RetentionClass.ATTACHMENTS), description="The contents of files."
    )
    settled: AgedLimitConfig = Field(
        default=AgedLimitConfig(),
        description="The contents of the inbox and the outbox, once answered and sent. Transcripts keep them.",
    )

    output: RetentionLimitConfig = Field(
        default=_limit(RetentionClass.OUTPUT), description="The files that jobs write with the target `local`."
    )

    def rules(self) -> RetentionRules:
        return RetentionRules(
            **{kind.value: RetentionLimit(**dict(getattr(self, kind.value))) for kind in RetentionClass}
        )
