"""A personal number behind a bridge: its states, its errors, and the several ids of one person."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.access import AccessRole, Grant
from palaver.model.turn import Outbound
from palaver.platforms.plugins import make_adapter
from palaver.platforms.whatsapp.adapter import BridgeAdapter, aliases_of, canonical_form, parse_frame
from palaver.protocols.adapter import (
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
)
from palaver.protocols.incoming import parse_or_skip
from palaver.store.status.invariants import violations
from palaver.testkit.recorder import Recorder, running
from tests.engine.gateway import running as gateway
from tests.engine.gateway import until
from tests.platforms.whatsapp.bridge import OWN_LID, OWN_NUMBER, SECRET, Bridge, bridging
from tests.platforms.whatsapp.bridge_fakes import ALICE, GROUP_ID, bridge_adapter, said

NUMBER = "491701234567"
LID = "112233445566@lid"


@pytest.fixture
async def bridge() -> AsyncGenerator[Bridge]:
    async with bridging() as bridge:
        yield bridge


def to(text: str = "hi", chat_id: str = NUMBER, **more: Any) -> Outbound:
    return Outbound(platform="whatsapp", account="mine", chat_id=chat_id, text=text, **more)


class Connected(Recorder):
    """Knows whether the adapter has connected, so that sends are possible."""

    is_connected = False

    async def connected(self) -> None:
        self.is_connected = True


# Ids


@pytest.mark.parametrize(
    ("form", "canonical"),
    [
        (ALICE, NUMBER),
        (f"{NUMBER}:3@s.whatsapp.net", NUMBER),
        (f"{NUMBER}@c.us", NUMBER),
        (f"+{NUMBER}", NUMBER),
        (NUMBER, NUMBER),
        (LID, LID),
        ("112233445566:12@lid", LID),
        (GROUP_ID, GROUP_ID),
        ("status@broadcast", "status@broadcast"),
        ("", ""),
    ],
)
def test_every_form_of_an_id_has_a_canonical_one(form: str, canonical: str) -> None:
    assert canonical_form(form) == canonical
    assert canonical_form(canonical) == canonical


def test_all_forms_lead_to_the_number_if_it_is_known() -> None:
    both = dict(aliases_of("112233445566:12@lid", f"{NUMBER}:3@s.whatsapp.net"))
    assert both == dict.fromkeys(("112233445566:12@lid", LID, f"{NUMBER}:3@s.whatsapp.net"), NUMBER)
    assert aliases_of("112233445566:12@lid", None) == [("112233445566:12@lid", LID)]
    assert aliases_of(NUMBER) == aliases_of() == aliases_of("", None) == []


async def test_a_person_is_one_under_number_jid_and_lid_through_the_gateway(bridge: Bridge, tmp_path: Path) -> None:
    """A grant for the number is hers in every form, and she has one conversation; a stranger has neither."""
    grants = (Grant(platform="whatsapp", role=AccessRole.MEMBER, user_id=NUMBER),)
    adapters = [bridge_adapter(bridge)]
    async with gateway(tmp_path / "p.db", adapters=adapters, grants=grants, acknowledges=False) as here:
        await until(lambda: bool(bridge.sockets))
        forms: list[dict[str, Any]] = [
            {"from": ALICE},
            {"from": f"{NUMBER}:3@s.whatsapp.net"},
            {"from": "112233445566:12@lid", "from_alt": ALICE},
            {"from": LID},
            {"from": "112233445566:4@lid"},
        ]
        for number, form in enumerate(forms):
            await bridge.say(said(f"n{number}", **form))
            await until(lambda n=number: any(f"n{n}" in each["text"] for each in bridge.sent))
        assert {each["to"] for each in bridge.sent} == {NUMBER}
        await bridge.tell({"type": "alias", "ids": ["778899@lid", f"{NUMBER}@s.whatsapp.net"]})
        await bridge.say(said("learned", **{"from": "778899@lid"}))
        await until(lambda: any("learned" in each["text"] for each in bridge.sent))
        await bridge.say(said("let me in", **{"from": "999@lid"}))
        await until(lambda: not bridge.unacked)
        await here.settled()
        assert len(await here.rows("SELECT 1 FROM sessions")) == 1
        refused = await here.rows("SELECT state = 'refused' FROM inbox ORDER BY no")
        assert [bool(each) for (each,) in refused] == [False] * 6 + [True]
        assert await here.store.read(violations()) == []


async def test_somebody_known_only_by_lid_keeps_the_conversation_when_the_number_is_learned(
    bridge: Bridge, tmp_path: Path
) -> None:
    grants = (Grant(platform="whatsapp", role=AccessRole.MEMBER),)
    adapters = [bridge_adapter(bridge)]
    async with gateway(tmp_path / "p.db", adapters=adapters, grants=grants, acknowledges=False) as here:
        await until(lambda: bool(bridge.sockets))
        for number, form in enumerate([{"from": LID}, {"from": LID, "from_alt": ALICE}, {"from": ALICE}]):
            await bridge.say(said(f"n{number}", **form))
            await until(lambda n=number: any(f"n{n}" in each["text"] for each in bridge.sent))
        await here.settled()
        assert [each["to"] for each in bridge.sent] == [LID, NUMBER, NUMBER]
        assert len(await here.rows("SELECT 1 FROM sessions")) == 1


# Frames


def test_a_group_message_has_names_mentions_and_a_quote() -> None:
    ours = frozenset({OWN_NUMBER, OWN_LID})
    quote = {"from": "49171@s.whatsapp.net", "text": "tea?", "name": "Bob"}
    frame = said(f"@{OWN_LID.partition('@')[0]} yes", group=GROUP_ID, group_name="Dev", name="Ann", quote=quote)
    found = parse_frame({**frame, "reply_to": "3A9"}, "mine", ours)
    assert found
    inbound = found.inbound
    assert (inbound.text, inbound.mentions_us, inbound.reply_to) == ("yes", True, "3A9")
    assert (inbound.source.chat_kind, inbound.source.chat_id, inbound.source.user_id) == ("group", GROUP_ID, ALICE)
    assert inbound.quote
    assert (inbound.quote.text, inbound.quote.is_ours) == ("tea?", False)
    assert inbound.quote.author == "whatsapp:49171"
    inside = parse_frame(
        said("ask @4930123456", group=GROUP_ID, mentions=[f"{OWN_NUMBER}:2@s.whatsapp.net"]), "a", ours
    )
    assert inside
    assert inside.inbound.mentions_us
    forwarded = parse_frame(said("/new", forwarded=True), "mine", ours)
    assert forwarded
    assert forwarded.inbound.text == "[forwarded]\n/new"


def test_what_we_wrote_ourselves_is_not_a_message() -> None:
    ours = frozenset({OWN_NUMBER, OWN_LID})
    for form in (f"{OWN_NUMBER}:9@s.whatsapp.net", "987654321:2@lid"):
        assert parse_frame(said("hi", **{"from": form}), "mine", ours) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("id", "from", "from_alt", "at", "text", "group", "name", "quote", "mentions", "files", "reply_to", "version")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, JSON)), st.sampled_from(["message", "change"]))
def test_an_odd_frame_is_skipped_or_read_and_raises_nothing_else(odd: dict[str, Any], kind: str) -> None:
    frame = {**said("hi"), **odd, "type": kind}
    parse_or_skip("whatsapp", lambda: parse_frame(frame, "mine", frozenset({OWN_NUMBER})))


async def test_an_unreadable_frame_is_acknowledged_and_blocks_nothing(bridge: Bridge) -> None:
    recorder = Recorder()
    async with running(bridge_adapter(bridge), recorder):
        await until(lambda: bool(bridge.sockets))
        await bridge.say({"type": "message", "text": 7})
        for socket in bridge.sockets:
            await socket.send_str("no json")
            await socket.send_bytes(b"\xff")
        await bridge.tell({"type": "something new"})
        await bridge.tell({"type": "alias", "ids": 7})
        await bridge.tell({"type": "result", "ref": [1]})
        await bridge.say(said("after"))
        await recorder.has(1)
        await until(lambda: not bridge.unacked)
    assert recorder.texts == ["after"]


# States and errors


async def test_the_check_names_the_number_or_says_what_to_do(bridge: Bridge) -> None:
    assert OWN_NUMBER in await bridge_adapter(bridge).check()
    with pytest.raises(PlatformRefused, match="bridge_secret"):
        await bridge_adapter(bridge, bridge_secret="guess").check()  # noqa: S106
    bridge.state = {"state": "unlinked"}
    with pytest.raises(PlatformRefused, match="scan its code"):
        await bridge_adapter(bridge).check()
    bridge.state = {"state": "connecting"}
    with pytest.raises(PlatformDown, match="no connection to WhatsApp"):
        await bridge_adapter(bridge).check()


async def test_run_ends_with_what_is_wrong(bridge: Bridge) -> None:
    adapter = bridge_adapter(bridge)
    with pytest.raises(PlatformRefused, match="bridge_secret"):
        await bridge_adapter(bridge, bridge_secret="guess").run(Recorder())  # noqa: S106
    for state, error in (("unlinked", PlatformRefused), ("connecting", PlatformDown)):
        bridge.state = {"state": state}
        with pytest.raises(error):
            await adapter.run(Recorder())
        with pytest.raises(PlatformDown):
            await adapter.send(to(), idempotency_key="1")
    with pytest.raises(PlatformDown, match="404"):
        await bridge_adapter(bridge, bridge_url=f"{bridge.url}/other").run(Recorder())
    with pytest.raises(PlatformDown, match="no connection to the bridge"):
        await bridge_adapter(bridge, bridge_url="http://127.0.0.1:1").run(Recorder())


async def test_each_error_of_a_send_means_something(bridge: Bridge) -> None:
    adapter = bridge_adapter(bridge)
    errors: list[tuple[dict[str, Any], type[PlatformError]]] = [
        ({"error": "down"}, PlatformDown),
        ({"error": "busy", "after": 7}, PlatformBusy),
        ({"error": "busy", "after": "soon"}, PlatformBusy),
        ({"error": "gone"}, TargetGone),
        ({"error": "refused", "words": "too long"}, SendRefused),
        ({"error": "unclear"}, SendUnclear),
        ({"error": "something new"}, SendUnclear),
    ]
    recorder = Connected()
    async with running(adapter, recorder):
        await until(lambda: recorder.is_connected)
        for answer, meant in errors:
            bridge.errors.append(answer)
            with pytest.raises(PlatformError) as raised:
                await adapter.send(to(), idempotency_key="1")
            assert type(raised.value) is meant
    assert not bridge.sent


async def test_a_bridge_that_does_not_answer_leaves_it_open(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = bridge_adapter(bridge)
    recorder = Connected()
    async with running(adapter, recorder):
        await adapter.typing(to())
        await until(lambda: recorder.is_connected)
        monkeypatch.setattr("palaver.platforms.whatsapp.adapter._RESULT_SECONDS", 0.0)
        with pytest.raises(SendUnclear):
            await adapter.send(to(), idempotency_key="1")


async def test_messages_are_read_once_stored_typing_is_shown_and_groups_get_quotes(bridge: Bridge) -> None:
    recorder, adapter = Connected(), bridge_adapter(bridge, read_receipts=True)
    async with running(adapter, recorder):
        await until(lambda: recorder.is_connected)
        message = said("hi")
        await bridge.say(message)
        await until(lambda: bool(bridge.frames))
        await adapter.typing(to())
        await adapter.send(to(reply_to="3A1"), idempotency_key="1")
        await adapter.send(to("**so**", chat_id=GROUP_ID, reply_to="3A2"), idempotency_key="2")
        await until(lambda: len(bridge.frames) == 2)
    assert bridge.frames == [
        {"type": "read", "chat": ALICE, "from": ALICE, "id": message["id"]},
        {"type": "typing", "to": NUMBER},
    ]
    assert [(each["text"], each.get("reply_to")) for each in bridge.sent] == [("hi", None), ("*so*", "3A2")]


def test_a_bridge_is_chosen_by_its_address() -> None:
    options = {"bridge_url": "http://127.0.0.1:8787", "bridge_secret": SECRET}
    assert isinstance(make_adapter("whatsapp", "mine", options), BridgeAdapter)


async def test_a_send_is_settled_while_messages_before_its_result_are_being_stored(bridge: Bridge) -> None:
    adapter, recorder = bridge_adapter(bridge), Connected()
    async with running(adapter, recorder):
        await until(lambda: recorder.is_connected)
        recorder.writes.clear()
        for number in range(5):
            await bridge.say(said(str(number)))
        await recorder.was_offered(1)
        assert await adapter.send(to(), idempotency_key="k") == "3EB00"
        recorder.writes.set()
        await recorder.has(5)
        await until(lambda: not bridge.unacked)
