"""Paging through the versions of a conversation."""

from palaver.model.versions import Choice, Version, choices


def version(number: int, parent: int | None = None, seq: int = 0, used: int = 0) -> Version:
    return Version(
        number=number, id=f"v{number}", parent=f"v{parent}" if parent else None, parent_seq=seq, last_active=used
    )


def test_answers_of_one_message_are_paged_in_the_order_in_which_they_were_given() -> None:
    known = [version(1), version(2, 1, 4), version(3, 2, 4)]
    assert choices(known, "v2") == {4: Choice(seq=4, position=2, sessions=("v1", "v2", "v3"))}
    shown = choices(known, "v1")[4]
    assert (shown.position, shown.previous, shown.next) == (1, None, "v2")


def test_a_version_leads_to_what_was_last_said_in_it() -> None:
    known = [version(1, used=9), version(2, 1, 4, used=1), version(3, 2, 8, used=5)]
    assert choices(known, "v1") == {4: Choice(seq=4, position=1, sessions=("v1", "v3"))}
    at = choices(known, "v3")
    assert at[4] == Choice(seq=4, position=2, sessions=("v1", "v3"))
    assert at[8] == Choice(seq=8, position=2, sessions=("v2", "v3"))


def test_a_conversation_with_one_version_has_no_choice() -> None:
    assert choices([], "v1") == choices([version(1)], "v1") == {}
