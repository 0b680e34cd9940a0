"""Stems of words, so that a search for `camp` finds `camping`. The language is guessed from the words around."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import Stemmer

__all__ = ["Stem", "guess_languages", "stem_words"]

_STOP_WORDS = {
    "english": "the and is was to of in that it you for with on are what when did how where who i my this have not we",
    "german": "der die das und ist war nicht ich du wir mit ein eine den dem wann wie wo wer zu auf fur im was hat",
    "french": "le la les et est une des du que qui dans pour pas je tu nous avec sur quand ou etait mon ma au ce",
    "spanish": "el la los las y es una que de en por con no mi para cuando donde como se lo del fue al yo",
    "italian": "il lo la gli e una che di per con non mi quando dove come del della sono era ho ha nel i al",
    "portuguese": "o a os as e um uma que de em por com nao meu para quando onde como do da no na foi eu ao",
    "dutch": "de het een en is was van ik je niet met op dat wie wat waar wanneer hoe voor zijn er te we",
    "swedish": "och att det som en ar var inte jag du vi med pa av for nar hur vad den till har om ett",
    "danish": "og at det som en er var ikke jeg du vi med pa af for hvornar hvordan hvad den til har om et",
    "norwegian": "og a det som en er var ikke jeg du vi med pa av for nar hvordan hva den til har om et",
    "finnish": "ja on ei se oli mita milloin missa kuka etta han mina sina kun niin ovat mutta myos",
    "polish": "i w na z nie to sie jest do ze co kiedy gdzie jak kto byl byla dla moj moja po o",
    "czech": "a v na se je to ze co kdy kde jak kdo byl byla pro muj moje s do ne jsem",
    "hungarian": "a az es hogy nem van volt egy mit mikor hol ki en te mi meg is",
    "romanian": "si in la nu este un o ce cand unde cum cine am fost pe cu de care mai",
    "turkish": "ve bir bu ne zaman nerede kim ben sen o da de icin ile mi var cok",
    "indonesian": "yang dan di ke dari ini itu saya kamu tidak apa kapan mana siapa untuk dengan ada",
}
_WORDS = {language: frozenset(words.split()) for language, words in _STOP_WORDS.items()}
_BY_SCRIPT = (
    ("\u0370", "\u03ff", ("greek",)),
    ("\u0400", "\u04ff", ("russian",)),
    ("\u0531", "\u058f", ("armenian",)),
    ("\u0600", "\u06ff", ("arabic", "persian")),
    ("\u0900", "\u097f", ("hindi", "nepali")),
    ("\u0b80", "\u0bff", ("tamil",)),
)
_IN_DOUBT = ("english", "german")
"""Others take more off: in Spanish `hello` would be `hell`."""
_MAX_LANGUAGES = 3


class Stem(NamedTuple):
    language: str
    text: str

    def fits(self, word: str) -> bool:
        return _stemmer(self.language)(word) == self.text


def guess_languages(words: Collection[str]) -> tuple[str, ...]:
    """Return the languages that lower-case words without accents are in: several where it is not clear."""
    found = set(words)
    counts = {language: len(found & common) for language, common in _WORDS.items()}
    best = max(counts.values())
    latin = [language for language, count in counts.items() if count == best][:_MAX_LANGUAGES] if best else _IN_DOUBT
    first = "".join(sorted({word[0] for word in found if word}))
    others = [each for low, high, names in _BY_SCRIPT if any(low <= char <= high for char in first) for each in names]
    return tuple(dict.fromkeys((*others, *latin)))


def stem_words(words: Iterable[str], languages: Iterable[str]) -> list[tuple[Stem, ...]]:
    """Return the different stems of each word. Numbers and single letters have none."""
    # A stemmer belongs to one thread at a time.
    stemmers = {language: _stemmer(language) for language in languages}
    return [_stems(word, stemmers) if len(word) > 1 and word.isalpha() else () for word in words]


def _stems(word: str, stemmers: Mapping[str, Callable[[str], str]]) -> tuple[Stem, ...]:
    found = {stem(word): language for language, stem in stemmers.items()}
    return tuple(Stem(language, text) for text, language in found.items() if text)


def _stemmer(language: str) -> Callable[[str], str]:
    library: Any = Stemmer
    return library.Stemmer(language).stemWord
