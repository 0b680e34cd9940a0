"""`/voice`: whether answers are spoken in this chat."""

from palaver.commands.models import open_session
from palaver.commands.registry import CommandGroup
from palaver.db.transaction import Statements, transaction
from palaver.engine.commands import CommandContext
from palaver.model.command import Arg, Invocation
from palaver.model.errors import BadArgument
from palaver.store.conversations import voice_settings
from palaver.store.store import Store

commands = CommandGroup("answers")
_ON, _OFF = "on", "off"


@commands.add(
    "voice",
    "Show whether answers are also spoken here, or choose it: on or off",
    "/voice on",
    Arg(name="on or off"),
)
@transaction
def voice(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    chosen, key = (invocation.words.get("on or off") or "").lower(), context.received.key
    if not context.speaks:
        return "This gateway does not speak. Set voice.speech in its configuration."
    if not chosen:
        is_on = yield from voice_settings.is_spoken(key)
    elif chosen in {_ON, _OFF}:
        is_on = chosen == _ON
        yield from open_session(store, context)
        yield from voice_settings.set_spoken(key, is_on=is_on)
    else:
        raise BadArgument("/voice takes on or off, not", found=chosen, allowed=f"{_ON}, {_OFF}", example="/voice on")
    return "Answers in this chat are also spoken. /voice off ends it." if is_on else "Answers in this chat are text."
