"""What is said when a conversation opens: notes to the agent, notices to the chat, each once."""

from palaver.domain.access import AccessRole
from palaver.domain.turn import Received
from palaver.domain.value import value
from palaver.engine import words
from palaver.engine.ground import Ground
from palaver.ports.store import Opened, Opening, Welcome

__all__ = ["Welcomes"]


@value(kw_only=False)
class Welcomes:
    on: Ground

    def welcome(self, opened: Opened, last: Received) -> Welcome:
        source = last.inbound.source
        notes: list[str] = []
        notices: list[str] = []
        if opened.opening is Opening.RESET and opened.reason is not None:
            notes.append(words.reset_note(opened.reason))
            # Where nothing had been said, nothing was lost that somebody could miss.
            if opened.before_had_words and self.on.options.reset_notices.find(source).value:
                notices.append(words.reset_notice(opened.reason))
        if opened.is_first_contact:
            notes.append(words.FIRST_CONTACT_NOTE)
        if opened.lacks_home and self.on.replies.has_places(source):
            notes.append(words.NO_HOME_NOTE)
            # Whoever may set it is told as well.
            if (last.role or AccessRole.GUEST) >= AccessRole.ADMIN:
                notices.append(words.NO_HOME)
        if not self.on.replies.reaches_people(source):
            notices = []
        outbound = tuple(message for text in notices for message in self.on.replies.to(source, text))
        return Welcome(notes=tuple(notes), notices=outbound)
