from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.access import (
    AccessRole,
    Basis,
    ChatKind,
    Effect,
    Grant,
    GrantIndex,
    Standing,
    Verdict,
    can_send_elsewhere,
    decide_access,
    keeps_an_owner,
    parse_grantee,
)
from palaver.model.errors import BadArgument
from palaver.model.source import Source, Trust
from tests.strategies import THOROUGH, close_sources, trusts

NO_TRUST = Trust()
ALICE = Source(platform="telegram", chat_id="7", user_id="7")
some_id = st.sampled_from((None, "42", "a", "user"))
grants = st.builds(
    Grant,
    effect=st.sampled_from((Effect.ALLOW, Effect.ALLOW, Effect.ALLOW, Effect.BLOCK)),
    role=st.sampled_from(AccessRole),
    basis=st.sampled_from(Basis),
    platform=st.sampled_from(("telegram", "discord")),
    account=some_id,
    scope_id=some_id,
    kind=st.sampled_from((None, None, *ChatKind)),
    chat_id=some_id,
    user_id=some_id,
)
someone = st.sampled_from((None, "ann", "bob"))
wider_grants = st.one_of(
    grants,
    st.builds(replace, grants, person=someone),
    st.builds(
        Grant,
        effect=st.sampled_from(Effect),
        role=st.sampled_from(AccessRole),
        basis=st.sampled_from(Basis),
        person=someone,
    ),
)
allows = grants.filter(lambda grant: grant.effect is Effect.ALLOW)
tables = st.lists(grants, max_size=5)


def role(source: Source, trust: Trust, table: list[Grant]) -> int:
    access = decide_access(source, trust, table)
    assert (access.verdict is Verdict.ALLOW) == (access.role is not None)
    return access.role or 0


@THOROUGH
@given(close_sources, trusts, tables, st.integers(0, 5))
def test_a_block_always_wins(source: Source, trust: Trust, table: list[Grant], at: int) -> None:
    block = Grant(effect=Effect.BLOCK, platform=source.platform, user_id=source.user_id)
    access = decide_access(source, trust, [*table[:at], block, *table[at:]])
    assert access.verdict is Verdict.REFUSE
    assert access.grant is not None
    assert access.grant.effect is Effect.BLOCK


@THOROUGH
@given(close_sources, trusts, tables, allows)
def test_one_more_grant_never_lowers_a_role(source: Source, trust: Trust, table: list[Grant], more: Grant) -> None:
    assert role(source, trust, [*table, more]) >= role(source, trust, table)


@THOROUGH
@given(close_sources, trusts, st.lists(wider_grants, max_size=12), someone)
def test_those_near_a_sender_decide_as_all_of_them_do(
    source: Source, trust: Trust, table: list[Grant], person: str | None
) -> None:
    near = GrantIndex(table).candidates(source, person)
    assert decide_access(source, trust, near, person=person) == decide_access(source, trust, table, person=person)
    assert [grant for grant in table if grant.matches(source, trust, person)] == [
        grant for grant in near if grant.matches(source, trust, person)
    ]


def test_near_a_sender_are_those_that_name_them_their_chat_or_everybody() -> None:
    others = [Grant(platform="telegram", user_id=str(number), chat_id="7") for number in range(100, 200)]
    near = [
        Grant(platform="telegram"),
        Grant(platform="telegram", user_id="7"),
        Grant(),
        Grant(platform="telegram", chat_id="7"),
        Grant(person="ann"),
    ]
    elsewhere = [Grant(platform="matrix"), Grant(platform="matrix", user_id="7"), Grant(person="bob")]
    assert GrantIndex([*others, *near, *elsewhere]).candidates(ALICE, "ann") == near


@THOROUGH
@given(close_sources, trusts, tables)
def test_the_order_of_grants_does_not_matter(source: Source, trust: Trust, table: list[Grant]) -> None:
    assert role(source, trust, table) == role(source, trust, table[::-1])


@THOROUGH
@given(close_sources, trusts, tables)
def test_strangers_are_never_allowed(source: Source, trust: Trust, table: list[Grant]) -> None:
    """Allowed is only who is named, in the place that is named, by a grant that is in the table."""
    access = decide_access(source, trust, table)
    if access.verdict is not Verdict.ALLOW:
        return
    grant = access.grant
    assert grant in table
    assert grant is not None
    assert grant.platform == source.platform
    assert grant.user_id is None or grant.user_id in {source.user_id, source.user_id_alt}
    assert grant.chat_id is None or grant.chat_id in {source.chat_id, source.parent_chat_id}
    assert grant.account is None or grant.account == source.account
    assert grant.scope_id is None or grant.scope_id == source.scope_id


@THOROUGH
@given(close_sources, trusts, tables)
def test_trust_marks_are_needed_where_a_grant_asks_for_them(source: Source, trust: Trust, table: list[Grant]) -> None:
    access = decide_access(source, trust, table)
    if access.verdict is Verdict.ALLOW and access.grant:
        assert {
            Basis.IDENTITY: not trust.is_bot,
            Basis.BOT: trust.is_bot,
            Basis.PLATFORM_ROLE: trust.has_role_grant,
            Basis.RELAY: trust.via_trusted_relay,
        }[access.grant.basis]


@THOROUGH
@given(close_sources, trusts, tables)
def test_a_bot_never_enters_without_a_grant_for_bots(source: Source, trust: Trust, table: list[Grant]) -> None:
    without = [grant for grant in table if grant.basis is not Basis.BOT]
    assert decide_access(source, replace(trust, is_bot=True), without).verdict is Verdict.REFUSE


@THOROUGH
@given(close_sources, trusts, tables)
def test_a_grant_on_one_platform_means_nothing_on_another(source: Source, trust: Trust, table: list[Grant]) -> None:
    elsewhere = replace(source, platform="signal")
    assert decide_access(elsewhere, trust, table) == decide_access(elsewhere, trust, [])


@THOROUGH
@given(close_sources, trusts, tables, st.booleans())
def test_only_people_with_an_id_in_a_direct_chat_can_pair(
    source: Source, trust: Trust, table: list[Grant], pairing: bool
) -> None:
    access = decide_access(source, trust, table, no_pairing="" if pairing else "pairing is off")
    if access.verdict is Verdict.PAIR:
        assert pairing
        assert source.chat_kind == "dm"
        assert source.participant is not None
        assert not trust.is_bot


@THOROUGH
@given(close_sources, trusts, tables)
def test_every_decision_has_a_reason_without_content(source: Source, trust: Trust, table: list[Grant]) -> None:
    reason = decide_access(source, trust, table).reason
    assert reason
    assert "a:b" not in reason
    assert "42" not in reason


def test_no_other_mark_makes_up_for_being_a_bot() -> None:
    bot = Trust(is_bot=True, has_role_grant=True, via_trusted_relay=True)
    for basis in Basis:
        verdict = decide_access(ALICE, bot, [Grant(basis=basis)]).verdict
        assert verdict is (Verdict.ALLOW if basis is Basis.BOT else Verdict.REFUSE)


def test_by_default_a_stranger_is_refused_or_can_pair() -> None:
    assert decide_access(ALICE, NO_TRUST, []).verdict is Verdict.PAIR
    assert decide_access(ALICE, NO_TRUST, [], no_pairing="pairing is off").verdict is Verdict.REFUSE
    assert decide_access(replace(ALICE, chat_kind="group"), NO_TRUST, []).verdict is Verdict.REFUSE
    assert decide_access(Source(platform="telegram", chat_id="7"), NO_TRUST, []).verdict is Verdict.REFUSE
    assert decide_access(ALICE, Trust(is_bot=True), []).verdict is Verdict.REFUSE


def test_the_highest_role_counts() -> None:
    table = [Grant(platform="telegram", role=role_) for role_ in (AccessRole.GUEST, AccessRole.ADMIN)]
    access = decide_access(ALICE, NO_TRUST, [*table, Grant(platform="telegram", user_id="7")])
    assert (access.verdict, access.role) == (Verdict.ALLOW, AccessRole.ADMIN)
    assert "admin" in access.reason


def test_the_reason_says_whom_the_grant_is_for() -> None:
    def whom(trust: Trust = NO_TRUST, **fields: Any) -> str:
        return decide_access(ALICE, trust, [Grant(**fields)], person="p1").reason.split(" gives ")[0]

    assert whom() == "a grant to everybody"
    assert whom(platform="telegram") == "a grant to everybody on this platform"
    assert whom(platform="telegram", chat_id="7") == "a grant to everybody in this chat"
    assert whom(platform="telegram", user_id="7") == "a grant to this sender"
    assert whom(person="p1") == "a grant to this person"
    role = whom(Trust(has_role_grant=True), basis=Basis.PLATFORM_ROLE, platform="telegram")
    assert role == "a grant to people with the role on the platform"


def test_a_grant_names_a_user_id_or_an_alternate_id_and_never_both() -> None:
    def allows(who: str, **ids: str) -> bool:
        grant = Grant(**parse_grantee(who, {"irc"}))
        return decide_access(Source(platform="irc", **ids), NO_TRUST, [grant]).verdict is Verdict.ALLOW

    assert allows("irc:alice", user_id="alice")
    assert allows("irc:alice", user_id="alice", user_id_alt="somebody"), "a grant by hand names the user id"
    assert not allows("irc:alice", user_id="mallory", user_id_alt="alice")
    assert allows("irc:alt:alice", user_id="guest42", user_id_alt="alice")
    assert not allows("irc:alt:alice", user_id="alice")
    assert not allows("irc:alt:alice", user_id="alt:alice"), "anybody can take a nick with a prefix"
    assert allows("irc:id:alt:alice", user_id="alt:alice")


def test_a_grant_holds_in_groups_only_or_in_direct_chats_only() -> None:
    def allows(kind: ChatKind, chat_kind: str) -> bool:
        grant = Grant(platform="telegram", kind=kind)
        return decide_access(replace(ALICE, chat_kind=chat_kind), NO_TRUST, [grant]).verdict is Verdict.ALLOW

    kinds = ("dm", "group", "channel", "thread", "forum")
    assert [kind for kind in kinds if allows(ChatKind.DM, kind)] == ["dm"]
    assert [kind for kind in kinds if allows(ChatKind.GROUP, kind)] == ["group", "channel", "thread", "forum"]


def test_a_grant_for_a_chat_holds_in_its_threads() -> None:
    here = Grant(platform="discord", chat_id="c")
    thread = Source(platform="discord", chat_kind="thread", chat_id="t", parent_chat_id="c", user_id="7")
    assert decide_access(thread, NO_TRUST, [here]).verdict is Verdict.ALLOW
    assert decide_access(replace(thread, parent_chat_id=None), NO_TRUST, [here]).verdict is Verdict.REFUSE


def test_a_grant_on_one_server_means_nothing_on_another() -> None:
    alice = Source(platform="irc", chat_id="alice", user_id="alice", scope_id="one")
    here, everywhere = (Grant(platform="irc", user_id="alice", scope_id=server) for server in ("one", None))
    for server, verdict in (("one", Verdict.ALLOW), ("two", Verdict.PAIR), (None, Verdict.PAIR)):
        source = replace(alice, scope_id=server)
        assert decide_access(source, NO_TRUST, [here]).verdict is verdict
        assert decide_access(source, NO_TRUST, [everywhere]).verdict is Verdict.ALLOW


def test_a_grant_for_an_id_needs_its_platform() -> None:
    known = Grant(platform="telegram", account="7", scope_id="7", chat_id="7", user_id="7")
    parts = ("account", "scope_id", "chat_id", "user_id")
    for part in parts:
        alone = {name: None for name in parts if name != part}
        with pytest.raises(BadArgument, match="needs its platform"):
            replace(known, platform=None, **alone)


def test_a_block_for_bots_does_not_block_people() -> None:
    table = [Grant(platform="telegram", user_id="7"), Grant(effect=Effect.BLOCK, basis=Basis.BOT)]
    assert decide_access(ALICE, NO_TRUST, table).verdict is Verdict.ALLOW


@THOROUGH
@given(close_sources, trusts, st.sampled_from(Basis))
def test_a_block_holds_for_bots_and_people_who_show_its_basis(source: Source, trust: Trust, basis: Basis) -> None:
    shows = {
        Basis.IDENTITY: True,
        Basis.PLATFORM_ROLE: trust.has_role_grant,
        Basis.RELAY: trust.via_trusted_relay,
        Basis.BOT: trust.is_bot,
    }
    access = decide_access(source, trust, [Grant(effect=Effect.BLOCK, basis=basis)])
    assert (access.grant is not None) == shows[basis]


def test_an_owner_is_kept_unless_a_block_covers_every_owner() -> None:
    owner = Grant(platform="telegram", role=AccessRole.OWNER, user_id="7")
    here = Grant(effect=Effect.BLOCK, platform="telegram")
    for block in (
        replace(here, basis=Basis.BOT),
        replace(here, chat_id="-100"),
        replace(here, kind=ChatKind.GROUP),
        replace(here, user_id="8"),
        Grant(effect=Effect.BLOCK, platform="matrix"),
        Grant(effect=Effect.BLOCK, person="p1"),
    ):
        assert keeps_an_owner([owner], [owner, block]), block
    for block in (here, replace(here, user_id="7"), Grant(effect=Effect.BLOCK)):
        assert not keeps_an_owner([owner], [owner, block]), block
        assert keeps_an_owner([owner], [owner, block, replace(owner, platform="matrix", user_id="9")]) == bool(
            block.platform
        )
    assert not keeps_an_owner([owner], [replace(owner, role=AccessRole.ADMIN)])
    assert keeps_an_owner([], [here]), "there was none to keep"
    by_role = Grant(role=AccessRole.OWNER, basis=Basis.PLATFORM_ROLE)
    assert not keeps_an_owner([by_role], [by_role, Grant(effect=Effect.BLOCK, basis=Basis.PLATFORM_ROLE)])


def test_what_all_grants_say_of_an_account() -> None:
    allow, block = Grant(platform="telegram"), Grant(effect=Effect.BLOCK, platform="telegram")
    cases = {
        (): Standing.STRANGER,
        (allow,): Standing.EVERYWHERE,
        (replace(allow, chat_id="-100"),): Standing.SOMEWHERE,
        (replace(allow, chat_id="-100"), allow): Standing.EVERYWHERE,
        (replace(allow, basis=Basis.PLATFORM_ROLE),): Standing.EVERYWHERE,
        (replace(allow, user_id="8"),): Standing.STRANGER,
        (allow, block): Standing.BLOCKED,
        (allow, replace(block, chat_id="-100")): Standing.SOMEWHERE,
        (allow, replace(block, basis=Basis.BOT)): Standing.EVERYWHERE,
        (block,): Standing.BLOCKED,
        (replace(block, chat_id="-100"),): Standing.STRANGER,
    }
    for grants, standing in cases.items():
        assert GrantIndex(grants).standing(ALICE) is standing, grants


def test_only_admins_send_elsewhere() -> None:
    assert [each for each in (None, *AccessRole) if can_send_elsewhere(each)] == [AccessRole.ADMIN, AccessRole.OWNER]
