"""Jobs as values: which answers are not sent, and where a schedule ends."""

from datetime import UTC, datetime
from itertools import product
from zoneinfo import ZoneInfo

import pytest

from palaver.model.errors import BadArgument
from palaver.model.firing import FiredJob
from palaver.model.job import split_schedule
from palaver.model.schedule import Cron, Once, parse_schedule
from palaver.model.spoken_schedule import find_schedule


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
        "30m at 9 tea",
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


UTC_ZONE, EVENING = ZoneInfo("UTC"), datetime(2026, 11, 19, 20, 37, tzinfo=UTC)
DAYS = {
    "today": "2026-11-19",
    "tomorrow": "2026-11-20",
    "the day after tomorrow": "2026-11-21",
    "next friday": "2026-11-20",
    "on monday": "2026-11-23",
    "on 24 December": "2026-12-24",
    "December 24th": "2026-12-24",
    "on the 3rd of march": "2027-03-03",
    "on 2026-12-24": "2026-12-24",
    "every day": "* * *",
    "every weekday": "* * MON-FRI",
    "every mon and thursday": "* * MON,THU",
}
TIMES = {"at 9": (9, 0), "at 22:30": (22, 30), "at 10am": (10, 0), "5 pm": (17, 0), "at noon": (12, 0)}
FORMS = (
    "{day} {time} {to} {what}",
    "{time} {day} {to} {what}",
    "{to} {what} {day} {time}",
    "{to} {what} {time} {day}",
    "{day} {to} {what} {time}",
    "{time} {to} {what} {day}",
)
NEVER = ("tomorow", "24/12", "on the 24th", "mondays", "next week", "on christmas", "every other day", "tonight", "UTC")


def fires(found: str, day: str, time: str) -> bool:
    """Whether a schedule is that day at that time, as the tables have it."""
    schedule, (hour, minute) = parse_schedule(found, UTC_ZONE, EVENING), TIMES[time]
    if isinstance(schedule, Cron):
        return schedule.expression == f"{minute} {hour} {DAYS[day]}"
    return isinstance(schedule, Once) and f"{schedule.at:%Y-%m-%d %H:%M}" == f"{DAYS[day]} {hour:02}:{minute:02}"


@pytest.mark.parametrize("day", DAYS)
def test_a_day_and_a_time_around_the_matter_mean_that_moment_or_lead_to_a_question(day: str) -> None:
    for number, (time, form) in enumerate(product(TIMES, FORMS)):
        said = form.format(day=day, time=time, to=("to", "that", "about")[number % 3], what="call mum")
        found = find_schedule(said, UTC_ZONE, EVENING)
        if day == "today" and time != "at 22:30":
            assert (found.schedule, found.problem.endswith("is in the past.")) == ("", True), said
        else:
            assert (found.prompt, fires(found.schedule, day, time)) == ("call mum", True), (said, found)


@pytest.mark.parametrize("strange", NEVER)
def test_a_time_beside_one_that_is_not_understood_leads_to_a_question(strange: str) -> None:
    for time, form in product([*TIMES, "tomorrow at 9", "in 2 hours", "every day at 8"], FORMS):
        said = form.format(day=strange, time=time, to="to", what="call mum")
        assert find_schedule(said, UTC_ZONE, EVENING).schedule == "", said


@pytest.mark.parametrize(
    ("said", "answer", "schedule", "prompt", "problem"),
    [
        ("in half an hour to run", "", "in half an hour", "run", ""),
        ("at 10:30 about the dentist", "", "at 10:30", "the dentist", ""),
        ("in 2 hours that the sun is out", "", "in 2 hours", "the sun is out", ""),
        ("tomorrow at noon to buy 3 eggs", "", "tomorrow at noon", "buy 3 eggs", ""),
        ("friday at 9am to print the friday list", "", "friday at 9am", "print the friday list", ""),
        ("call mum tomorrow at 9am to say hi", "", "tomorrow at 9am", "call mum to say hi", ""),
        (f"in 1 hour to say {'no ' * 60}", "", "in 1 hour", f"say{' no' * 60}", ""),
        ("to call mum", "", "", "call mum", ""),
        ("at 9 to call", "", "", "at 9 to call", "“at 9” can be before or after noon."),
        ("soon to call", "", "", "soon to call", "I do not understand “soon” as a time."),
        ("tomorrow at 9 and 10 to eat", "", "", "tomorrow at 9 and 10 to eat", "“tomorrow at 9 and 10”"),
        ("tomorrow to look at 9 doors", "", "", "tomorrow to look at 9 doors", "“at 9 doors”"),
        ("at 9am to eat before 5pm", "", "", "at 9am to eat before 5pm", "“at 9am” and “before 5pm” as one time."),
        ("on 31 June at 9 to eat", "", "", "on 31 June at 9 to eat", "“31 June” does not exist."),
        ("on 24 December to pack", "", "", "on 24 December to pack", "has no time of day."),
        ("on 24 December to pack", "at 10am", "on 24 December at 10am", "pack", ""),
        ("on 24 December to pack", "tomorrow at 9", "tomorrow at 9", "pack", ""),
        ("at 9 to call", "tomorrow please", "at 9 tomorrow", "call", ""),
        ("at 9 to call", "pm", "at 9 pm", "call", ""),
        ("at 9 to call", "at 9pm", "at 9pm", "call", ""),
        ("in 100 years to smile", "in 10 seconds", "in 10 seconds", "smile", ""),
        ("tomorrow at 9 to cook for friday", "tomorrow at 9", "tomorrow at 9", "cook for friday", ""),
        ("every day at 25:00 to drink", "8am", "every day 8am", "drink", ""),
        ("tomorow at 9am to call mum and dad", "tomorrow", "at 9am tomorrow", "call mum and dad", ""),
        ("every friday to call", "at 9", "every friday at 9", "call", ""),
        ("to call", "at 9", "", "call", "“at 9” can be before or after noon."),
        ("to call", "whenever", "", "call", "I do not understand “whenever” as a time."),
    ],
)
def test_a_time_in_what_somebody_said_or_answered(
    said: str, answer: str, schedule: str, prompt: str, problem: str
) -> None:
    found = find_schedule(said, UTC_ZONE, EVENING, answer)
    assert (found.schedule, found.prompt) == (schedule, prompt)
    assert found.problem.endswith(problem) if problem.endswith(".") else problem in found.problem
    assert bool(found.problem) == bool(problem)
