"""A change of anything the program says to people shows up in review."""

from tests.project.sentences import FIXTURE, collect


def test_every_sentence_is_on_the_list() -> None:
    assert collect() == FIXTURE.read_text(), "read the new sentences, then: python -m tests.project.sentences"
