"""Jobs as values: which answers are not sent, and where a schedule ends."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from palaver.model.errors import BadArgument
from palaver.model.job import FiredJob, split_schedule


def test_silent_answers_in_the_forms_that_models_give() -> None:
    job = FiredJob(number=1, name="news")
    silent = (
        *("", "[SILENT]", " **[silent]** nothing new", "⟦SILENT⟧", "silent.", "NO_REPLY", "`no reply`", "[NO_REPLY]"),
        *("I looked at the log.\n\n[SILENT]", "Nothing new.\r\n**[SILENT]**\n"),
    )
    for answer in silent:
        assert job.is_silent(answer), answer
        assert not FiredJob(number=1, name="news", skips_silent=False).is_silent(answer)
    for answer in ("The log says [SILENT].", "Silent night", "No reply\nfrom Ann yet", "Look:\nsilent", "[SILENT\nyes"):
        assert not job.is_silent(answer), answer


def test_a_prompt_that_begins_like_a_schedule_is_refused_unless_quotes_say_so() -> None:
    zone, now = ZoneInfo("UTC"), datetime(2026, 3, 1, 12, tzinfo=UTC)
    for text in (
        "every day at 9 tea",
        "30m at 18:00 tea",
        "0 9 * * MON in Asia/Tokio tea",
        "2027-03-28T02:30 in Europe/Berlin gap",
        "daily in Asia/Tokyo tea",
    ):
        with pytest.raises(BadArgument, match="begins like a part of a schedule"):
            split_schedule(text, zone, now)
    with pytest.raises(BadArgument, match="The hour of '25:00' is not from 0 to 23"):
        split_schedule("every day at 25:00 tea", zone, now)
    with pytest.raises(BadArgument, match="The hour of '25:00' is not from 0 to 23"):
        split_schedule("tomorrow 25:00 tea", zone, now)
    assert split_schedule("30m 9:00 train", zone, now) == ("30m", "9:00 train")
    assert split_schedule("next friday at 9 am tea", zone, now) == ("next friday at 9 am", "tea")
    assert split_schedule('"every day" at 9 I want tea', zone, now) == ("every day", "at 9 I want tea")
    assert split_schedule("every day at 09:00 in Asia/Tokyo tea", zone, now).prompt == "tea"
    assert split_schedule("30m in two words", zone, now).prompt == "in two words"
