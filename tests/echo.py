"""Which agent answers in tests where none is configured: the echo, because what it says is known to the letter.

Tests of the guide start a new interpreter, name it in the configuration, or use `guided`.
"""

from collections.abc import Generator
from contextlib import contextmanager

from palaver.config.model import Config
from palaver.settings.agents import EchoAgentConfig, GuideAgentConfig


def answer_with(default: EchoAgentConfig | GuideAgentConfig) -> None:
    """Make it the default in this process, and in all that are forked from it."""
    Config.model_fields["agent"].default = default
    Config.model_rebuild(force=True)


@contextmanager
def guided() -> Generator[None]:
    """Until it ends, the default is what people have."""
    answer_with(GuideAgentConfig())
    try:
        yield
    finally:
        answer_with(EchoAgentConfig())
