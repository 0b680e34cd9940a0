import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.access import AccessRole
from palaver.model.command import (
    YES,
    Arg,
    ArgKind,
    Command,
    Invocation,
    as_said,
    command_table,
    name_usable,
    parse_command,
    usable_answer,
)
from palaver.model.errors import BadArgument, InvalidInput, UnknownCommand
from palaver.model.turn import BusyMode
from tests.strategies import THOROUGH, texts

NEW = Command(
    name="new",
    help="Start fresh",
    example="/new Holiday",
    args=(Arg(name="title", kind=ArgKind.REST),),
    aliases=("reset",),
)
UNDO = Command(name="undo", help="Take back", example="/undo 2", args=(Arg(name="turns", kind=ArgKind.NUMBER),))
RESUME = Command(
    name="resume",
    help="Go on",
    example="/resume 3",
    args=(Arg(name="which"), Arg(name="all", kind=ArgKind.FLAG), Arg(name="dry-run", kind=ArgKind.FLAG)),
)
SEARCH = Command(
    name="search",
    help="Find",
    example="/search holiday",
    args=(Arg(name="words", kind=ArgKind.REST, required=True), Arg(name="all", kind=ArgKind.FLAG)),
)
QUEUE = Command(
    name="queue",
    help="Busy mode",
    example="/queue collect",
    args=(Arg(name="mode", required=True, choices=("queue", "collect")), Arg(name="chat")),
)
HELP = Command(name="help", help="Help", example="/help", urgent=True)
TABLE = command_table(NEW, UNDO, RESUME, SEARCH, QUEUE, HELP)


def run(text: str) -> Invocation:
    found = parse_command(text, TABLE)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "hello /new",
        "/",
        "//new",
        "/ new",
        "/usr/bin/x",
        "/usr/bin/x --all",
        "/new/x",
        "/new.",
        "/new?",
        "/1",
        "/-new",
        "/ñew",
        "./new",
        "/new@",
        "/new@a/b",
    ],
)
def test_ordinary_text_is_no_command(text: str) -> None:
    assert parse_command(text, TABLE) is None


def test_a_command_can_name_a_bot() -> None:
    assert run("/new@Palaver_Bot x").words == {"title": "x"}


def test_a_command_is_found_by_name_alias_and_in_any_case() -> None:
    assert run("/new").command is NEW
    assert run("  /RESET\n").command is NEW
    assert run("/new\nHoliday\nplans").words == {"title": "Holiday\nplans"}


def test_the_rest_is_kept_as_it_was_written() -> None:
    assert run('/new  a  --c  "b"').words == {"title": 'a  --c  "b"'}
    assert run("/new").words == {}


def test_words_and_numbers() -> None:
    assert run("/undo 007").numbers == {"turns": 7}
    assert run("/undo").numbers == {}
    assert run('/resume "two words"').words == {"which": "two words"}
    assert run('/resume "never closed').words == {"which": "never closed"}
    assert run("/queue collect here").words == {"mode": "collect", "chat": "here"}


@pytest.mark.parametrize("flag", ["--all", "\u2014all", "\u2013all", "--ALL"])
def test_a_flag_stands_before_or_after_also_as_a_phone_writes_it(flag: str) -> None:
    for text in (f"/resume {flag} 3", f"/resume 3 {flag}"):
        assert (run(text).flags, run(text).words) == ({"all"}, {"which": "3"})
    assert run(f"/search {flag} a b").words == {"words": "a b"}
    assert run("/resume --dry-run").flags == {"dry-run"}


@pytest.mark.parametrize(
    "text", ["/new --foo", "/new A plan --foo", "/search --none of these", "/search --all a --none"]
)
def test_an_option_nobody_declared_is_refused_where_options_stand(text: str) -> None:
    with pytest.raises(
        BadArgument, match=r"has no option '--.*before text that starts with --, for example /"
    ) as caught:
        run(text)
    run(caught.value.example)


@pytest.mark.parametrize("text", ["/help --foo", "/undo --foo", "/resume 3 --foo", "/resume --foo 3"])
def test_where_there_is_no_text_nothing_is_said_about_it(text: str) -> None:
    with pytest.raises(BadArgument, match=r"has no option '--foo'\. Use /\S+( \[.*\], for example /)?"):
        run(text)


def test_behind_two_hyphens_and_after_a_dash_it_is_text() -> None:
    assert run("/new -- --foo").words == {"title": "--foo"}
    assert run("/new --").words == {}
    assert run("/new -- A plan --foo").words == {"title": "A plan --foo"}
    assert run("/new —foo").words == {"title": "—foo"}
    assert run("/search --all -- --none of — these").flags == {"all"}
    for text in ("--all", "--none of — these --all", "a —all"):
        assert run(f"/search -- {text}").words == {"words": text}
        assert not run(f"/search -- {text}").flags


def test_what_is_said_to_the_agent_is_left_as_it_is() -> None:
    say = Command(
        name="say", help="", example="/say hi", args=(Arg(name="text", kind=ArgKind.REST),), busy_mode=BusyMode.QUEUE
    )
    for text in ("--verbose", "-- a", "run it --verbose"):
        found = parse_command(f"/say {text}", command_table(say))
        assert found is not None
        assert found.words == {"text": text}


def test_a_flag_in_the_middle_of_free_text_is_text() -> None:
    assert run("/search the --all option").words == {"words": "the --all option"}
    assert run("/search --all the --all  option\n--ALL").words == {"words": "the --all  option"}
    assert run("/resume --all 3 --dry-run").flags == {"all", "dry-run"}
    assert run("/resume --all --dry-run —all").flags == {"all", "dry-run"}


@pytest.mark.parametrize("gap", ["\t", "\n", "\u00a0"])
def test_any_white_space_ends_a_word(gap: str) -> None:
    assert run(f"/queue collect{gap}here").words == {"mode": "collect", "chat": "here"}


def test_an_unknown_command_suggests_close_ones() -> None:
    with pytest.raises(UnknownCommand, match=r"'/resme'\. Did you mean /resume.*\?"):
        run("/resme 3")
    with pytest.raises(UnknownCommand) as caught:
        run("/qqqq")
    assert "Send /help" in str(caught.value)


def test_an_unknown_command_of_an_empty_table_is_said_to_be_unknown() -> None:
    with pytest.raises(UnknownCommand):
        parse_command("/new", {})


def test_letters_that_only_fold_to_ascii_are_ordinary_text() -> None:
    assert parse_command("/ſtatuſ", TABLE) is None
    assert run("/search a --aſl").words == {"words": "a --aſl"}


@pytest.mark.parametrize(
    "text",
    [
        "/undo x",
        "/undo -1",
        "/undo 1.5",
        "/undo ٣",
        "/undo ²",
        "/undo 1 2",
        "/search",
        "/search --all",
        "/queue",
        "/queue never",
        '/queue ""',
        "/queue queue a b",
        "/help me",
        "/resume a b",
    ],
)
def test_bad_arguments_name_the_usage_and_an_example(text: str) -> None:
    command = TABLE[text.split(maxsplit=1)[0][1:]]
    with pytest.raises(BadArgument) as caught:
        run(text)
    usage = f"Use {command.usage}, for example {command.example}" if command.args else "takes no arguments."
    assert usage in str(caught.value)
    run(caught.value.example)


def test_the_usage_shows_what_is_needed() -> None:
    assert SEARCH.usage == "/search <words> [--all]"
    assert QUEUE.usage == "/queue <queue|collect> [<chat>]"


names = st.sampled_from(("/new", "/undo", "/resume", "/search", "/queue", "/help", "/x", "/new@bot", "/", ""))
gaps = st.sampled_from((" ", "", "\n", "  ", "\u00a0"))


@THOROUGH
@given(st.one_of(texts, st.builds("{}{}{}".format, names, gaps, st.one_of(texts, st.text('—-al"2 \n')))))
def test_any_text_is_a_command_or_text_or_helpfully_refused(text: str) -> None:
    try:
        found = parse_command(text, TABLE)
    except InvalidInput as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017
        return
    assert found is None or text.strip().startswith("/")


@pytest.mark.parametrize(
    "text",
    [
        "/" + "a" * 10**6,
        "/new " + "—" * 10**6,
        '/queue "' + " a" * 500_000,
        "/x " * 300_000,
        "/search a" + " --all" * 150_000,
    ],
)
def test_a_megabyte_is_read(text: str) -> None:
    try:
        parse_command(text, TABLE)
    except InvalidInput as error:
        assert len(str(error)) < 1000  # noqa: PT017


def test_a_name_declared_twice_is_a_mistake_in_the_code() -> None:
    with pytest.raises(ValueError, match="/reset is declared twice"):
        command_table(NEW, Command(name="reset", help="", example="/reset"))
    assert command_table(NEW, NEW).keys() == {"new", "reset"}


BRANCH = Command(
    name="branch",
    help="Go on beside it",
    example="/branch",
    args=(Arg(name="title", kind=ArgKind.REST), Arg(name="at", kind=ArgKind.COUNT), YES),
)


@pytest.mark.parametrize(
    ("text", "title", "at", "flags"),
    [
        ("/branch", None, None, set[str]()),
        ("/branch --at 2", None, 2, set[str]()),
        ("/branch --at 2 A  plan", "A  plan", 2, set[str]()),
        ("/branch A  plan --at 2", "A  plan", 2, set[str]()),
        ("/branch A  plan --yes \u2014at 2", "A  plan", 2, {"yes"}),
        ("/branch A --at 2 plan", "A --at 2 plan", None, set[str]()),
        ("/branch --yes A --yes --yes", "A --yes", None, {"yes"}),
    ],
)
def test_an_option_with_a_number_stands_before_or_after(
    text: str, title: str | None, at: int | None, flags: set[str]
) -> None:
    found = parse_command(text, command_table(BRANCH))
    assert found is not None
    assert (found.words.get("title"), found.numbers.get("at"), found.flags) == (title, at, flags)


@pytest.mark.parametrize("text", ["/branch --at", "/branch --at x", "/branch --at -1", "/branch A --at"])
def test_an_option_without_its_number_is_refused(text: str) -> None:
    with pytest.raises(BadArgument, match="whole number for at"):
        parse_command(text, command_table(BRANCH))


@pytest.mark.parametrize(
    ("said", "number"), [("0", 0), ("000000000012", 12), ("999999999", 999_999_999), ("9" * 5000, 999_999_999)]
)
def test_more_than_there_can_be_is_the_most(said: str, number: int) -> None:
    found = parse_command(f"/branch --at {said}", command_table(BRANCH))
    assert found is not None
    assert found.numbers == {"at": number}


FIND = Command(
    name="find",
    help="Find",
    example="/find words",
    args=(
        Arg(name="words", kind=ArgKind.REST, required=True),
        Arg(name="from", kind=ArgKind.OPTION, hint="person"),
        Arg(name="role", kind=ArgKind.OPTION, choices=("user", "tool")),
        Arg(name="best", kind=ArgKind.FLAG),
    ),
)


def _find(text: str) -> Invocation:
    found = parse_command(text, command_table(FIND))
    assert found is not None
    return found


def test_an_option_with_a_word_stands_before_or_after() -> None:
    assert FIND.usage == "/find <words> [--from <person>] [--role <user|tool>] [--best]"
    wanted = ({"words": "a b", "from": "me", "role": "tool"}, {"best"})
    for text in ("/find --from me --role tool --best a b", "/find --best a b --role tool --from me"):
        assert (_find(text).words, _find(text).flags) == wanted
    assert _find("/find a --from me b").words == {"words": "a --from me b"}


@pytest.mark.parametrize("text", ["/find a --from", "/find a --role agent", "/find a --form me"])
def test_an_option_without_its_word_or_with_a_wrong_one_is_refused(text: str) -> None:
    with pytest.raises(
        BadArgument, match=r"/find (needs a value after --from|does not take .* after --role|has no option)"
    ):
        _find(text)


def test_who_declares_yes_confirms() -> None:
    assert (BRANCH.confirms, NEW.confirms) == (True, False)
    assert BRANCH.usage == "/branch [<title>] [--at <n>] [--yes]"


@pytest.mark.parametrize("name", ["", "New", "two words", "new/", "x" * 33, "ñ"])
def test_a_name_that_nobody_can_say_is_a_mistake_in_the_code(name: str) -> None:
    with pytest.raises(ValueError, match="is not a command name"):
        Command(name=name, help="", example="")


def test_a_notice_names_only_commands_that_its_reader_can_use() -> None:
    notice = "It is fresh. /back returns to the old one; /resume lists others."
    assert name_usable(notice, AccessRole.MEMBER, {}) == notice
    assert name_usable(notice, AccessRole.GUEST, {}) == "It is fresh."
    for_guests = name_usable(notice, AccessRole.GUEST, {"back": AccessRole.GUEST})
    assert for_guests == "It is fresh. /back returns to the old one."
    assert name_usable("They stay; /back undoes it.", None, {}) == "They stay."
    assert name_usable("They stay; /back undoes it. One waits.", None, {}) == "They stay. One waits."
    table = command_table(Command(name="back", help="", example=""))
    assert usable_answer("Saved to /srv now. /back undoes it.", None, table) == "Saved to /srv now."
    said = as_said("read /back. Or\nnot")
    assert name_usable(f"It is {said}. /back returns.\n/back returns.\n\nend", None, {}) == f"It is {said}.\n\nend"
