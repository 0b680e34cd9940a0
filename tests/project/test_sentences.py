"""What the program says to people is plain English: STYLE's words to avoid are in none of its sentences."""

import re

from tests.project.sentences import collect

AVOIDED = re.compile(
    r"\b(whoever|whatever|shall|lets it be|(?:is|are) (?:told|asked)|at hand|lately|by itself)\b", re.IGNORECASE
)


def test_sentences_avoid_hard_words() -> None:
    sentences = list(collect())
    assert len(sentences) > 1000
    assert [each for each in sentences if AVOIDED.search(each[1])] == []


def test_a_hard_word_is_seen() -> None:
    assert AVOIDED.search("The owner is told, whatever happens.")
    assert not AVOIDED.search("The owner is bold.")
