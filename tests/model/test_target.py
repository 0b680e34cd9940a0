from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.errors import BadArgument
from palaver.model.target import All, Home, Local, Origin, Place, Target, parse_targets
from palaver.platforms.plugins import PLATFORMS
from tests.strategies import BRIEF, THOROUGH, ids, texts

# What could be the beginning or the end of an id with colons.
tempting = st.sampled_from(
    ("19", "a", "8", "!v12", "!a:b", "x", "42", "8448", "$e", "b:8448", "x@thread.v2", "a:x", "%21")
)
_LONGEST = 60
real_ids = st.one_of(ids.filter(lambda text: 0 < len(text) <= _LONGEST), tempting)
threads = st.one_of(st.none(), real_ids)
with_threads = [name for name, platform in PLATFORMS.items() if platform.has_threads and name != "matrix"]
without_threads = [
    name
    for name, platform in PLATFORMS.items()
    if not platform.has_threads and not platform.place and name != "homeassistant"
]
with_servers = [name for name, platform in PLATFORMS.items() if platform.has_servers]
places = st.one_of(
    st.builds(Place, platform=st.sampled_from(with_threads), chat=real_ids, thread=threads),
    st.builds(Place, platform=st.sampled_from(without_threads), chat=real_ids),
    st.builds(Place, platform=st.sampled_from(with_servers), server=real_ids, chat=real_ids),
)
rooms = st.builds(
    Place,
    platform=st.just("matrix"),
    chat=st.builds(str.__add__, st.sampled_from("!#@"), st.one_of(st.just(""), real_ids)),
    thread=st.one_of(threads, real_ids.map("$".__add__)),
)
targets = st.one_of(
    st.sampled_from((Origin(), Local(), All())),
    st.builds(Home, st.sampled_from(sorted(PLATFORMS))),
    places,
    rooms,
)


def parse(text: str) -> tuple[Target, ...]:
    return parse_targets(text, PLATFORMS)


def place(platform: str, chat: str, thread: str | None = None) -> Place:
    return Place(platform=platform, chat=chat, thread=thread)


def target_text(targets: Iterable[Target]) -> str:
    return ",".join(target.text for target in targets)


@THOROUGH
@given(st.lists(targets, min_size=1, max_size=4, unique=True))
def test_the_text_of_targets_parses_back_to_them(given_targets: list[Target]) -> None:
    assert parse(target_text(given_targets)) == tuple(given_targets)


@pytest.mark.parametrize(
    "target",
    [
        place("teams", "19", "x"),
        place("teams", "19", "x@thread.v2"),
        place("teams", "a", "1pL6i0"),
        place("matrix", "!v12", "42"),
        place("matrix", "!a:b", "8448"),
    ],
)
def test_a_thread_is_never_taken_for_a_part_of_the_chat(target: Place) -> None:
    assert parse(target.text) == (target,)


@THOROUGH
@given(targets)
def test_the_text_of_a_target_is_one_plain_word(target: Target) -> None:
    assert target.text.isascii()
    assert target.text.isprintable()
    assert not set(target.text) & set(", /")


@BRIEF
@given(st.one_of(places, rooms), st.one_of(places, rooms))
def test_distinct_places_have_distinct_texts(one: Place, other: Place) -> None:
    assert (one.text == other.text) == (one == other)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("origin", Origin()),
        ("local", Local()),
        ("all", All()),
        ("telegram", Home("telegram")),
        (" ORIGIN ", Origin()),
        ("Telegram", Home("telegram")),
        ("TELEGRAM:AbC", place("telegram", "AbC")),
        ("telegram:-100", place("telegram", "-100")),
        ("telegram:-100:42", place("telegram", "-100", "42")),
        ("slack:C1:1712.34", place("slack", "C1", "1712.34")),
        ("irc:#palaver", place("irc", "#palaver")),
        ("email:a@b.example", place("email", "a@b.example")),
        ("feishu:a%3Ab:c%2Cd", place("feishu", "a:b", "c,d")),
        ("signal:100%", place("signal", "100%")),
        ("telegram:origin", place("telegram", "origin")),
        ("irc@libera:#dev", Place(platform="irc", server="libera", chat="#dev")),
        (" IRC @ Libera : #dev", Place(platform="irc", server="Libera", chat="#dev")),
        ("slack@T1:C1:1712.34", Place(platform="slack", server="T1", chat="C1", thread="1712.34")),
        ("irc@a@b%3A6697:#dev", Place(platform="irc", server="a@b:6697", chat="#dev")),
    ],
)
def test_a_target_by_example(text: str, target: Target) -> None:
    assert parse(text) == (target,)


@pytest.mark.parametrize(
    ("text", "chat", "thread"),
    [
        ("!abc:example.org", "!abc:example.org", None),
        ("!abc%3Aexample.org", "!abc:example.org", None),
        ("#room:example.org", "#room:example.org", None),
        ("!abc:example.org:8448", "!abc:example.org:8448", None),
        ("!abc:example.org:$event", "!abc:example.org", "$event"),
        ("!abc:example.org:8448:$event", "!abc:example.org:8448", "$event"),
        ("!abc%3Aexample.org:$event", "!abc:example.org", "$event"),
        ("!abc:example.org:$old%3Aexample.org", "!abc:example.org", "$old:example.org"),
        ("!v12room", "!v12room", None),
        ("!v12room:$event", "!v12room", "$event"),
    ],
)
def test_a_matrix_room_can_be_written_raw_or_encoded(text: str, chat: str, thread: str | None) -> None:
    assert parse(f"matrix:{text}") == (place("matrix", chat, thread),)


def test_a_teams_chat_can_be_written_raw() -> None:
    assert parse("teams:19:x@thread.tacv2:1712") == (place("teams", "19:x@thread.tacv2", "1712"),)


def test_a_personal_teams_chat_can_be_written_raw() -> None:
    assert parse("teams:a:1pL6i0") == (place("teams", "a:1pL6i0"),)
    assert parse("teams:a:1pL6i0:17") == (place("teams", "a:1pL6i0", "17"),)


def test_the_text_of_an_ordinary_place_is_what_people_write() -> None:
    assert place("telegram", "-100", "42").text == "telegram:-100:42"
    assert place("irc", "#palaver").text == "irc:#palaver"
    assert Place(platform="irc", server="libera", chat="#dev").text == "irc@libera:#dev"
    assert place("matrix", "!a:b.example", "$e").text == "matrix:!a%3Ab.example:$e"


def test_several_targets_keep_their_order_and_each_comes_once() -> None:
    assert parse("local, telegram:1 ,origin") == (Local(), place("telegram", "1"), Origin())
    assert parse("origin,ORIGIN,telegram:a%3ab,origin,telegram:a%3Ab") == (Origin(), place("telegram", "a:b"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ",",
        "origin,",
        ",origin",
        "telegram:",
        "telegram: ",
        "telegram::42",
        "telegram:1:",
        "telegram:a:b:c",
        "a:b:c:d",
        ":1",
        "origin:1",
        "all:1",
        "local:file",
        "origin@x",
        "irc@libera",
        "irc@:#dev",
        "irc@ :#dev",
        "@libera:#dev",
        "telegram@libera:1",
        "terminal@here:1",
        "carrier-pigeon",
        "carrier-pigeon:1",
        "telegram:1,carrier-pigeon",
        "telegram;1",
        "matrix:room",
        "matrix:!a:b:$old:server",
        "matrix:!a:b:c:d",
        "telegram:" + "1" * 3000,
        "telegram:1:" + "長" * 300,
    ],
)
def test_a_bad_target_is_refused_when_it_is_set(text: str) -> None:
    with pytest.raises(BadArgument, match=r"Use .*for example "):
        parse(text)


@pytest.mark.parametrize("name", without_threads)
def test_a_thread_is_refused_where_there_are_none(name: str) -> None:
    assert parse(f"{name}:1") == (place(name, "1"),)
    with pytest.raises(BadArgument, match=rf"{name}:1:2.*Use {name}(\[@<server>\])?:<chat> without a thread"):
        parse(f"{name}:1:2")


def test_a_chat_is_refused_where_there_is_one_place() -> None:
    assert parse("terminal") == (Home("terminal"),)
    with pytest.raises(BadArgument, match=r"has only one place, so 'terminal:1' names no chat. Use terminal$"):
        parse("terminal:1")


def test_white_space_around_an_id_is_no_part_of_it() -> None:
    assert parse("telegram: 123") == (place("telegram", "123"),)
    assert parse("telegram : 1\t:\n42 ,matrix:!a: b: $e") == (
        place("telegram", "1", "42"),
        place("matrix", "!a:b", "$e"),
    )
    assert parse("telegram:%20a%20") == (place("telegram", " a "),)


def test_an_unknown_platform_lists_the_known_ones() -> None:
    with pytest.raises(BadArgument) as caught:
        parse("carrier-pigeon:1")
    assert all(name in str(caught.value) for name in PLATFORMS)
    assert "carrier-pigeon" in str(caught.value)


@pytest.mark.parametrize("name", sorted(PLATFORMS))
def test_the_example_in_the_error_works(name: str) -> None:
    with pytest.raises(BadArgument) as caught:
        parse(f"{name}:")
    assert parse(caught.value.example)


@THOROUGH
@given(st.one_of(texts, st.builds("{}:{}".format, st.sampled_from(sorted(PLATFORMS)), texts)))
def test_any_text_is_a_target_that_can_be_written_or_is_refused(text: str) -> None:
    try:
        found = parse(text)
    except BadArgument:
        return
    assert parse(target_text(found)) == found


@pytest.mark.parametrize(
    "junk",
    [
        "x" * 10**6,
        "," * 10**6,
        "telegram:" + ":" * 10**6,
        "telegram:" + "%3A" * 300_000,
        "matrix:!" + "a:" * 500_000,
        "matrix:!a:" + "b" * 500_000 + "$:" + "c" * 500_000 + ":",
        "teams:" + "1" * 10**6 + ":" + ":",
        "telegram:" + "\ud800é" * 500_000 + "::",
    ],
    ids=lambda junk: str(junk)[:12].encode("ascii", "replace").decode(),
)
def test_a_megabyte_of_junk_is_read(junk: str) -> None:
    try:
        parse(junk)
    except BadArgument as error:
        assert len(str(error)) < 1000  # noqa: PT017
