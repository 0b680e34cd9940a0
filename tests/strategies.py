"""Hypothesis strategies shared by the tests: ids that want to be mistaken, sources that nearly collide, time zones."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo, available_timezones

from hypothesis import settings
from hypothesis import strategies as st

from palaver.model.key import DmScope, GroupScope, Scope, Speaker
from palaver.model.label import Label
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.model.source import Labels, Source, Trust

__all__ = [
    "BRIEF",
    "NASTY",
    "THOROUGH",
    "ZONES",
    "close_sources",
    "ids",
    "instants",
    "labels",
    "moments",
    "policies",
    "scopes",
    "sources",
    "speakers",
    "texts",
    "trusts",
    "zones",
]

# No deadline: a slow machine is not a wrong program.
BRIEF = settings(max_examples=40, deadline=None)
THOROUGH = settings(max_examples=60, deadline=None)

NASTY = (
    "",
    " ",
    " a ",
    ":",
    "a:b",
    "a",
    "b",
    "42",
    "-100",
    "/",
    "..",
    "../../etc/passwd",
    "%",
    "%3A",
    "%3a",
    "%253A",
    "a%3Ab",
    "%ED%A0%80",
    "%FF",
    "é",
    "%C3%A9",
    "\n",
    "a\nb",
    "\r\n",
    "\0",
    "😀",
    "\ud800",
    "\ud83d\ude00",
    "A",
    "@a",
    "a,b",
    "a b",
    "thread",
    "user",
    "person",
    "scope",
    "account",
    "thread:42",
    "user:7",
    "dm",
    "agent",
    "main",
    "\u202eabc",
    "x" * 4000,
    "X" * 4000,
)

_any_character = st.characters(exclude_categories=())
texts = st.text(_any_character)
ids = st.one_of(st.sampled_from(NASTY), st.text(_any_character, max_size=12), st.text(":%/3Aa,", max_size=6))
_some_id = st.one_of(st.none(), ids)
_names = st.one_of(st.sampled_from(("main", "thread", "a:b", "%3A")), ids.filter(bool))

sources = st.builds(
    Source,
    platform=st.sampled_from(("telegram", "discord", "signal", "matrix")),
    chat_kind=st.one_of(st.sampled_from(("dm", "group", "channel", "thread")), _names),
    account=_some_id,
    chat_id=_some_id,
    chat_id_alt=_some_id,
    thread_id=_some_id,
    parent_chat_id=_some_id,
    scope_id=_some_id,
    user_id=_some_id,
    user_id_alt=_some_id,
    profile=_names,
    message_id=_some_id,
)

# Few ids, so that one source's user is often another's thread.
_few = st.sampled_from((None, "42", "a", "a:b", "user"))
_fewer = st.sampled_from((None, "42"))
close_sources = st.builds(
    Source,
    platform=st.sampled_from(("telegram", "discord")),
    chat_kind=st.sampled_from(("dm", "dm", "group", "channel", "thread")),
    account=_fewer,
    chat_id=_few,
    thread_id=_few,
    parent_chat_id=_few,
    scope_id=_fewer,
    user_id=_few,
    user_id_alt=_fewer,
    profile=st.sampled_from(("main", "main", "main", "42")),
    message_id=_few,
)

speakers = st.builds(Speaker, person=st.sampled_from((None, "42", "p")), is_owner=st.booleans())
scopes = st.builds(
    Scope,
    dm=st.sampled_from(DmScope),
    group=st.sampled_from(GroupScope),
    thread=st.sampled_from(GroupScope),
)
trusts = st.builds(Trust, is_bot=st.booleans(), has_role_grant=st.booleans(), via_trusted_relay=st.booleans())

_label = st.one_of(st.none(), st.builds(Label, ids))
labels = st.builds(Labels, chat=_label, user=_label, topic=_label)

ZONES = tuple(sorted(available_timezones()))
zones = st.builds(ZoneInfo, st.sampled_from(ZONES))
_offsets = st.one_of(
    st.just(UTC),
    st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
    zones,
)
_FIRST, _LAST = datetime(1990, 1, 1, tzinfo=UTC), datetime(2040, 12, 31, tzinfo=UTC)
instants = st.datetimes(_FIRST.replace(tzinfo=None), _LAST.replace(tzinfo=None), timezones=st.just(UTC))
moments = st.builds(datetime.astimezone, instants, _offsets)

policies = st.builds(
    ResetPolicy,
    mode=st.sampled_from(ResetMode),
    idle_minutes=st.one_of(st.integers(1, 3000), st.integers(1, 5_256_000)),
    at_hour=st.integers(0, 23),
)
