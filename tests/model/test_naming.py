"""Names and ids are told to the model in one way everywhere, and where ids are hidden no name gives one away."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.label import Label
from palaver.model.naming import Naming, Pseudonyms
from palaver.model.prompt import HomeChannel, Situation, context_section
from palaver.model.source import DM, GROUP, Labels, Source
from palaver.model.transcript import Entry, Role, Sender
from palaver.model.view import view
from palaver.platforms.catalog import PLATFORMS
from tests.strategies import THOROUGH, ids

KEY = Pseudonyms(b"key")
SIGNAL = PLATFORMS["signal"]
HIDING = Naming(platform=SIGNAL, pseudonyms=KEY)
OPEN = Naming(platform=SIGNAL)
UUID = "9f1c2b7e-0d3a-4e55-8a66-0123456789ab"
ANN = Source(platform="signal", chat_kind=DM, chat_id="+491701234567", user_id="+491701234567", user_id_alt=UUID)


def told(source: Source, labels: Labels, naming: Naming, *, shared: bool) -> str:
    """Everything that names somebody: the section, and a transcript in which the source has spoken."""
    home = HomeChannel(platform=naming.platform, chat_id=source.chat_id or "1", name=labels.chat)
    situation = Situation(source=source, platform=naming.platform, labels=labels, shared=shared, homes=(home,))
    said: dict[str, Any] = {"role": Role.USER, "at": datetime(2026, 3, 1, tzinfo=UTC), "text": "hello"}
    said |= {"sender": Sender(source.participant, labels.user), "message_id": source.message_id}
    log = [Entry(seq=1, **said), Entry(seq=2, observed=True, **said)]
    shown = view(log, naming, shared=True, message_ids=True)
    return context_section(situation, naming.pseudonyms) + "".join(message.text for message in shown)


# Numbers in names


@pytest.mark.parametrize(
    "name",
    [
        "+49 170 1234567",
        "0170 1234567",
        "0170/123-45.67",
        "(0170) 12 34 567",
        "1234567",
        "Mom +491701234567",
        "Mom+491701234567!",
        "٠١٧٠١٢٣٤٥٦٧",
        "0170\u200b12\u200b34567",
        UUID.upper(),
        f"it is {UUID}",
    ],
)
def test_a_name_that_gives_away_any_id_of_the_sender_is_replaced(name: str) -> None:
    pseudonym = KEY.of("user", "signal", UUID)
    said = told(ANN, Labels(user=Label(name)), HIDING, shared=False)
    assert f"- Person: id {pseudonym}\n" in said
    assert f"⟦from id {pseudonym}⟧" in said
    assert f"⟦overheard, not said to you, from id {pseudonym}⟧" in said
    assert Label(name).plain() not in said


@pytest.mark.parametrize("name", ["Ann", "Ann 42", "R2-D2", "Ann 2026", "agent 007 of 2026"])
def test_other_names_stay(name: str) -> None:
    said = told(ANN, Labels(user=Label(name)), HIDING, shared=False)
    assert f'- Person: "{name}" (id {KEY.of("user", "signal", UUID)})\n' in said
    assert f'⟦from "{name}"⟧' in said


def test_an_address_is_an_id_too() -> None:
    source = Source(platform="imessage", chat_id="iMessage;-;ann", user_id="ann")
    naming = Naming(platform=PLATFORMS["imessage"], pseudonyms=KEY)
    said = told(source, Labels(user=Label("ann@example.org (work)")), naming, shared=False)
    assert "example" not in said
    assert '⟦from "@ann at home"⟧' in told(source, Labels(user=Label("@ann at home")), naming, shared=False)


@pytest.mark.parametrize("field", ["chat_id", "chat_id_alt", "user_id", "user_id_alt", "parent_chat_id"])
def test_a_name_is_compared_with_every_id_of_the_source(field: str) -> None:
    source = replace(ANN, **{field: "Ann-Of-Example"})
    for label in ("chat", "user", "topic"):
        labels = Labels(**{label: Label("about ann-of-example")})
        situation = Situation(source=replace(source, chat_kind=GROUP), platform=SIGNAL, labels=labels)
        assert "example" in context_section(situation)
        assert "example" not in context_section(situation, KEY)


def test_a_very_short_id_hides_only_the_very_same_name() -> None:
    assert HIDING.name_and_id("user", "7", Label("R7")).startswith('"R7"')
    assert '"7"' not in HIDING.name_and_id("user", "7", Label("7"))


@pytest.mark.parametrize("naming", [OPEN, Naming(platform=PLATFORMS["discord"], pseudonyms=KEY)])
def test_nothing_is_hidden_without_redaction_or_where_ids_are_needed(naming: Naming) -> None:
    said = told(replace(ANN, message_id="55"), Labels(user=Label("+49 170 1234567")), naming, shared=False)
    assert said.count('"+49 170 1234567"') == 3
    assert said.count('⟦message id "55"⟧') == 1
    assert UUID in said


_written = st.sampled_from(["{}", "+{}", "Mom {}", "{}!", "⟦{}⟧", "call {} now", "x{}x", "{0} {0}"])
_gaps = st.sampled_from(["", " ", "-", ".", ") ", " / ", "_", "\u200b", "\n", "\u00a0", "🙂"])
_numbers = st.integers(10**6, 10**15).map(str)


@st.composite
def _hostile(draw: st.DrawFn, raw: str) -> Label:
    """The id, or its end as people write it at home, with anything between the digits and words around."""
    digits = draw(st.sampled_from([raw, raw[-7:], "0" + raw[2:], raw[:7]]))
    cuts = draw(st.lists(st.integers(0, len(digits)), max_size=4))
    gap = draw(_gaps)
    for cut in sorted(cuts, reverse=True):
        digits = digits[:cut] + gap + digits[cut:]
    return Label(draw(_written).format(digits))


@st.composite
def _betrayed(draw: st.DrawFn) -> tuple[Source, Labels]:
    form = st.sampled_from(["{}", "+{}", "{}@s.whatsapp.net", "-100{}", "a{}b"])
    found = {name: draw(_numbers) for name in ("chat_id", "chat_id_alt", "user_id", "user_id_alt", "message_id")}
    places = {name: draw(st.none() | _numbers) for name in ("thread_id", "parent_chat_id", "scope_id")}
    raw = [number for number in (*found.values(), *places.values()) if number]
    kind = draw(st.sampled_from([DM, GROUP]))
    source = Source(
        platform="signal", chat_kind=kind, **{name: draw(form).format(number) for name, number in found.items()}
    )
    names = st.none() | st.sampled_from(raw).flatmap(_hostile) | ids.map(Label)
    return replace(source, **places), Labels(chat=draw(names), user=draw(names), topic=draw(names))


def _runs(identity: str | None) -> set[str]:
    digits = re.sub(r"\D", "", identity or "")
    return {digits[at : at + 7] for at in range(len(digits) - 6)}


@THOROUGH
@given(_betrayed(), st.booleans())
def test_no_part_of_an_id_is_told_where_ids_are_hidden(given_: tuple[Source, Labels], shared: bool) -> None:
    source, labels = given_
    said = told(source, labels, HIDING, shared=shared)
    left = re.sub(r"[\W_]", "", re.sub(r"(user|chat|thread|server)_[0-9a-f]{16}", "", said))
    named = source.to_json()
    for run in set[str]().union(*map(_runs, named.values())):
        assert run not in left


@THOROUGH
@given(_betrayed(), _betrayed())
def test_who_speaks_does_not_show_in_the_section_of_a_shared_conversation(
    one: tuple[Source, Labels], other: tuple[Source, Labels]
) -> None:
    """Not even by what is hidden: the chat may be called what one of its members has as an id."""
    (source, labels), (speaker, names) = one, other
    spoken = replace(source, user_id=speaker.user_id, user_id_alt=speaker.user_id_alt, message_id=speaker.message_id)
    for topic in (labels.topic, Label(f"ask {speaker.user_id}"), Label("ask bob@example.org")):
        before, after = (
            Situation(source=at, platform=SIGNAL, labels=replace(labels, user=user, topic=topic), shared=True)
            for at, user in ((source, labels.user), (replace(spoken, user_id="bob@example.org"), names.user))
        )
        assert context_section(before, KEY) == context_section(after, KEY)
        assert context_section(before) == context_section(after)


# Who is who


def test_people_without_a_name_can_be_told_apart() -> None:
    unnamed = (None, Label(""), Label("\u200b \n"))
    assert {OPEN.sender(Sender("7", name)) for name in unnamed} == {'id "7"'}
    assert {HIDING.sender(Sender("7", name)) for name in unnamed} == {f"id {KEY.of('user', 'signal', '7')}"}
    assert HIDING.sender(Sender("7")) != HIDING.sender(Sender("8"))


def test_somebody_of_whom_nothing_is_known_cannot_be_imitated() -> None:
    assert OPEN.sender(None) == OPEN.sender(Sender()) == "unknown"
    assert OPEN.sender(Sender(None, Label("unknown"))) == '"unknown"'
    assert OPEN.sender(Sender(None, Label("id 7"))) == '"id 7"'


def test_names_come_with_ids_where_mentions_need_them() -> None:
    discord = Naming(platform=PLATFORMS["discord"], pseudonyms=KEY)
    assert discord.sender(Sender("42", Label("alice"))) == '"alice" (id "42")'
    assert discord.sender(Sender("42")) == 'id "42"'
    assert discord.sender(Sender(None, Label("alice"))) == '"alice"'
    assert OPEN.sender(Sender("42", Label("alice"))) == '"alice"'
