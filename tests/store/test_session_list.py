"""Lists of sessions: newest first, page by page, for one principal; and what they add up to."""

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.model.errors import BadArgument
from palaver.model.session import EndReason, Principal, SessionState
from palaver.model.source import Source
from palaver.store.conversations import sessions, titles, transcript
from palaver.store.queue import turns
from palaver.store.status import session_list
from palaver.store.status.session_list import NO_FILTER, ListFilter, Page, Totals
from palaver.store.store import Store
from tests.store.world import NOON, OPERATOR, World, answer, dm, group, key_of

ALICE, BOB = dm("7"), dm("8")
HOSTILE = [
    "\x1b[31mred",
    "a\x00b",
    "</td><script>",
    "\u202eevil",
    "100%_!",
    "日本語",
    "é",
    "\ud800x",
    '"quoted"\\',
    "\n\n",
]


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


def who(source: Source) -> Principal:
    return Principal.speaking(source)


async def page(
    store: Store,
    wanted: ListFilter = NO_FILTER,
    principal: Principal = OPERATOR,
    *,
    after: str | None = None,
    limit: int = 50,
) -> Page:
    return await store.read(session_list.list_sessions(principal, wanted=wanted, after=after, limit=limit))


async def ids(store: Store, wanted: ListFilter = NO_FILTER, principal: Principal = OPERATOR) -> list[str]:
    return [preview.session.id for preview in (await page(store, wanted, principal)).previews]


async def talk(world: World, *sources: Source) -> list[str]:
    """One exchange for each, an hour apart; gives their sessions."""
    made: list[str] = []
    for source in sources:
        made.append((await world.exchange(f"from {source.user_id}", source=source)).turn.session)
        world.later(hours=1)
    return made


async def test_an_empty_store_lists_nothing(store: Store) -> None:
    assert await page(store) == Page(previews=(), after=None)
    assert (await store.read(session_list.stats(OPERATOR))).total == Totals()
    assert await store.read(session_list.list_session_ids(OPERATOR)) == []


async def test_newest_first_with_the_last_thing_a_person_said(world: World) -> None:
    alice, bob = await talk(world, ALICE, BOB)
    await world.exchange("again", source=ALICE)
    found = (await page(world.store)).previews
    assert [(preview.session.id, preview.last_said) for preview in found] == [(alice, "again"), (bob, "from 8")]
    assert found[0].session.counters.entries == 4


async def test_a_preview_shows_nothing_hidden_and_nothing_overheard(world: World) -> None:
    await world.exchange("kept")
    await world.exchange("taken back")
    await world.store.transact(transcript.undo(key_of(ALICE), 1, world.now, principal=OPERATOR))
    await world.say("go on")
    begun = await world.begin()
    assert begun
    await world.store.transact(turns.settle(begun.turn, [answer("psst", observed=True)], [], world.now))
    await world.store.transact(transcript.undo(key_of(ALICE), 1, world.now, principal=OPERATOR))
    assert [preview.last_said for preview in (await page(world.store)).previews] == ["kept"]


async def test_a_preview_is_the_beginning_of_any_text(world: World) -> None:
    for text in (*HOSTILE, "x" * 1_000_000, "ü\\\n" * 400_000, "\x01" * 5000):
        await world.exchange(text)
        said = (await page(world.store)).previews[0].last_said
        expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        assert expected.startswith(said)
        assert len(said) == len(expected) or len(said) > 600


async def test_pages_show_every_session_once_even_of_the_same_instant(world: World) -> None:
    made = [(await world.exchange("hi", source=dm(str(user)))).turn.session for user in range(11)]
    seen: list[str] = []
    after = None
    while True:
        found = await page(world.store, after=after, limit=3)
        seen += [preview.session.id for preview in found.previews]
        assert len(found.previews) <= 3
        after = found.after
        if after is None:
            break
    assert seen == made[::-1]


async def test_a_session_that_becomes_active_is_not_missed_by_the_next_page(world: World) -> None:
    first, second, third = await talk(world, dm("1"), dm("2"), dm("3"))
    found = await page(world.store, limit=1)
    assert [preview.session.id for preview in found.previews] == [third]
    await world.exchange("back again", source=dm("3"))
    rest = await page(world.store, after=found.after)
    assert [preview.session.id for preview in rest.previews] == [second, first]


@pytest.mark.parametrize(
    "cursor", ["", "x", "=", "AAAA", "MS4y=", "ZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmYuMQ", "é", "\ud800"]
)
async def test_a_wrong_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(BadArgument):
        await page(store, after=cursor)


@pytest.mark.parametrize(("limit", "shown"), [(-5, 1), (0, 1), (1, 1), (2, 2), (10_000, 3)])
async def test_a_page_is_never_empty_nor_endless(world: World, limit: int, shown: int) -> None:
    await talk(world, dm("1"), dm("2"), dm("3"))
    assert len((await page(world.store, limit=limit)).previews) == shown


async def test_filters(world: World) -> None:
    alice, bob, there = await talk(world, ALICE, BOB, dm("9", platform="signal", profile="work"))
    await world.store.transact(titles.rename(bob, "Kitchen shelf", OPERATOR))
    number = (await world.store.read(sessions.get_visible(alice, OPERATOR))).number
    await world.store.transact(sessions.end(number, EndReason.IDLE, world.now))
    hour = timedelta(hours=1)
    expected: tuple[tuple[ListFilter, list[str]], ...] = (
        (ListFilter(platform="signal"), [there]),
        (ListFilter(platform="telegram"), [bob, alice]),
        (ListFilter(profile="work"), [there]),
        (ListFilter(state=SessionState.ENDED), [alice]),
        (ListFilter(state=SessionState.OPEN), [there, bob]),
        (ListFilter(titled=True), [bob]),
        (ListFilter(owner="telegram:7"), [alice]),
        (ListFilter(person="telegram:8"), [bob]),
        (ListFilter(person="telegram:nobody"), []),
        (ListFilter(since=NOON + hour), [there, bob]),
        (ListFilter(until=NOON + hour), [alice]),
        (ListFilter(since=NOON + hour, until=NOON + 2 * hour, titled=True), [bob]),
        (ListFilter(platform="signal", titled=True), []),
    )
    for wanted, sessions_found in expected:
        assert await ids(world.store, wanted) == sessions_found, wanted


TITLES = [
    ("Kitchen shelf", "SHELF", True),
    ("Kitchen shelf", "n s", True),
    ("Kitchen shelf", "n\n\ts", True),
    ("Kitchen shelf", "%", False),
    ("Kitchen shelf", "k_tchen", False),
    ("100% sure_ish!", "0%", True),
    ("100% sure_ish!", "e_i", True),
    ("100% sure_ish!", "H!", True),
    ("ÄRGER", "ärger", True),
    ("旅行の計画", "計画", True),
    ("a\\b", "\\", True),
    ("x", "'; DROP TABLE sessions; --", False),
]
"""A title, a text to look for, and whether it is found."""


async def test_text_in_the_title(world: World) -> None:
    (session,) = await talk(world, ALICE)
    for title, text, found in TITLES:
        await world.store.transact(titles.rename(session, title, OPERATOR))
        assert await ids(world.store, ListFilter(title=text)) == ([session] if found else []), (title, text)


async def test_hostile_filters_find_nothing(world: World) -> None:
    await talk(world, ALICE)
    for hostile in HOSTILE:
        everywhere = (
            ListFilter(platform=hostile),
            ListFilter(profile=hostile),
            ListFilter(owner=hostile),
            ListFilter(person=hostile),
        )
        for wanted in everywhere:
            assert await ids(world.store, wanted) == [], hostile
        assert await ids(world.store, NO_FILTER, who(dm(hostile))) == [], hostile


@pytest.mark.parametrize("few", [0, 1, 2000])
async def test_everybody_sees_their_own(world: World, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to look, through the sessions of a person and along the activity, see the same."""
    monkeypatch.setattr(session_list, "SORTABLE_SESSIONS", few)
    alice, bob, _ = await talk(world, ALICE, BOB, dm("9"))
    assert await ids(world.store, NO_FILTER, who(ALICE)) == [alice]
    assert await ids(world.store, NO_FILTER, who(BOB)) == [bob]
    assert await ids(world.store, NO_FILTER, who(dm("6"))) == []
    assert await ids(world.store, NO_FILTER, Principal()) == []
    assert await ids(world.store, ListFilter(person="telegram:8"), who(ALICE)) == []
    both = Principal(identities=who(ALICE).identities | who(BOB).identities)
    assert await ids(world.store, NO_FILTER, both) == [bob, alice]
    first = await page(world.store, NO_FILTER, both, limit=1)
    second = await page(world.store, NO_FILTER, both, after=first.after, limit=1)
    assert [preview.session.id for preview in (*first.previews, *second.previews)] == [bob, alice]
    assert second.after is None
    for source, own in ((ALICE, [alice]), (BOB, [bob]), (dm("6"), [])):
        assert await world.store.read(session_list.list_session_ids(who(source))) == own
        assert (await world.store.read(session_list.stats(who(source)))).total.sessions == len(own)


async def test_somebody_elses_cursor_shows_nothing_more(world: World) -> None:
    alice, _, _ = await talk(world, ALICE, BOB, dm("9"))
    cursor = (await page(world.store, limit=1)).after
    found = await page(world.store, NO_FILTER, who(ALICE), after=cursor)
    assert [preview.session.id for preview in found.previews] == [alice]


async def test_ids_go_through_all_sessions(world: World) -> None:
    made = await talk(world, *(dm(str(user)) for user in range(5)))
    assert await world.store.read(session_list.list_session_ids(OPERATOR, limit=2)) == made[:2]
    assert await world.store.read(session_list.list_session_ids(OPERATOR, after=made[1], limit=9)) == made[2:]


# Sums


async def test_stats_add_up(world: World) -> None:
    await talk(world, ALICE, ALICE, BOB, dm("9", platform="signal"), group("7"))
    number = (await world.store.read(sessions.find((await ids(world.store))[0], OPERATOR))).number
    await world.store.transact(sessions.end(number, EndReason.IDLE, world.now))
    found = await world.store.read(session_list.stats(OPERATOR))
    assert found.total == Totals(
        sessions=4, open=3, entries=10, turns=5, input_tokens=50, output_tokens=25, cost_micros=15
    )
    assert found.total.ended == 1
    assert {name: totals.sessions for name, totals in found.platforms.items()} == {"signal": 1, "telegram": 3}
    assert found.database_bytes
    assert found.database_bytes > 10_000
    mine = await world.store.read(session_list.stats(who(ALICE)))
    assert mine.total.sessions == 2
    assert mine.database_bytes is None


async def test_days_and_weeks_are_those_of_the_zone(world: World) -> None:
    await talk(world, dm("1"))  # 1 March 2026, a Sunday, at noon in UTC
    world.later(hours=9)
    await talk(world, dm("2"))  # at 22 o'clock
    far = await world.store.read(session_list.stats(OPERATOR, zone=ZoneInfo("Asia/Kathmandu")))
    assert [(str(day), totals.sessions) for day, totals in far.days.items()] == [("2026-03-01", 1), ("2026-03-02", 1)]
    assert [str(week) for week in far.weeks] == ["2026-02-23", "2026-03-02"]
    near = await world.store.read(session_list.stats(OPERATOR))
    assert [(str(day), totals.sessions) for day, totals in near.days.items()] == [("2026-03-01", 2)]
    late = await world.store.read(session_list.stats(OPERATOR, since=NOON + timedelta(hours=1)))
    assert (late.total.sessions, next(iter(late.days.values())).sessions) == (2, 1)


_NEWEST = "SELECT s.no FROM sessions s WHERE (s.last_active, s.no) < (5, 5) ORDER BY s.last_active DESC, s.no DESC"


@transaction
def plan() -> Statements[str]:
    rows = yield "EXPLAIN QUERY PLAN " + _NEWEST, ()
    return " ".join(row[3] for row in rows)


async def test_a_page_walks_the_index(store: Store, store_url: str) -> None:
    if store_url.startswith("postgres"):
        return  # its plan depends on how many sessions there are; the bench measures it
    found = await store.read(plan())
    assert "SEARCH s USING" in found
    assert "sessions_by_activity" in found
    assert "TEMP B-TREE" not in found
