"""Let the echo agent answer where a test configures none: what it says is known to the letter.

Tests that are about the guide start a new interpreter, or name it in the configuration.
"""

from palaver.config.agents import EchoAgentConfig
from palaver.config.model import Config


def answer_with_echo() -> None:
    """Do so in this process, and in all that are forked from it."""
    Config.model_fields["agent"].default = EchoAgentConfig()
    Config.model_rebuild(force=True)
