"""What a firing carries into its turn, and the answer that is not sent."""

from palaver.model.label import marker
from palaver.model.session import ModelOverride
from palaver.model.value import value

SILENT = "[SILENT]"
"""An answer that begins or ends with it, or is nothing else, is not sent."""
_SILENT_FORMS = (SILENT, marker("SILENT"), "[NO_REPLY]", "[NO REPLY]")
"""Small models copy the brackets of the note that tells them."""
_SILENT_ALONE = frozenset({*_SILENT_FORMS, "SILENT", "NO_REPLY", "NO REPLY"})
_DECORATION = " \t*_`."


def is_silent(answer: str) -> bool:
    """Tell whether an answer that nobody waits for says that there is nothing to send.

    The word in brackets counts alone, at the beginning and as the last line, the bare word only alone.
    """
    text = answer.strip().upper()
    first, last = text.lstrip(_DECORATION), text.rpartition("\n")[2].strip(_DECORATION)
    return (
        not text or text.strip(_DECORATION) in _SILENT_ALONE or first.startswith(_SILENT_FORMS) or last in _SILENT_FORMS
    )


@value
class FiredJob:
    """What a firing asks of its turn. It holds what the job was when it fired."""

    number: int
    name: str
    model: ModelOverride | None = None
    workdir: str | None = None
    script: str | None = None
    """The script that runs before the agent is asked."""
    uses_model: bool = True
    """If not, the output of the script is the answer."""
    skips_silent: bool = True
    attached: bool = False
    """It runs in the conversation of a chat, not in its own."""

    def is_silent(self, answer: str) -> bool:
        """Tell whether the answer says that there is nothing to send."""
        return self.skips_silent and is_silent(answer)

    @property
    def note(self) -> str:
        """Return what the agent learns about the prompt that follows."""
        silent = f" Answer {SILENT} and nothing else if there is nothing to send." if self.skips_silent else ""
        return f"job {self.number} runs now as scheduled; nobody is waiting for the answer.{silent}"
