"""Guides: what a person is asked who gives the gateway an account on a platform, by `palaver setup NAME`.

What the entry point of an adapter leads to may have a `guide`. Without one, its options without a usual value are asked
for. Whatever is secret among the options is not shown while it is typed, and is written into a file of its own.
"""

from collections.abc import Callable, Sequence

from palaver.domain.value import value

__all__ = ["Guide", "Question"]


@value
class Question:
    option: str
    """Which option of the account the answer is."""
    asks: str
    help: str = ""
    """Said before: how one comes to an answer."""
    usual: str = ""
    """The answer where nothing is said. `{folder}` stands for that of the configuration, `{account}` for its name."""
    needed: bool = True
    """Whether there has to be an answer."""
    unless: str = ""
    """It is not asked where this other option was given."""
    where: str = ""
    """It is asked only where this other option was given; empty for always."""
    make: Callable[[], str] | None = None
    """Where nothing is said, the answer is made: a new secret."""


@value
class Guide:
    questions: Sequence[Question]
    before: str = ""
    """What to do on the platform first."""
    after: str = ""
    """What is good to know once it works; `{account}` stands for its name."""
    owner: str = ""
    """Where people talk: how they find out under which id they are known there."""
    owner_form: str = ""
    """A regular expression that such an id matches, all of it; empty where any may be one."""
    owner_example: str = ""
