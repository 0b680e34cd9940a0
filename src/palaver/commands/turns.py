"""Commands about the answer that is being worked on. They act at once, also during a turn."""

from palaver.commands.registry import Performance
from palaver.domain.command import Command, Invocation
from palaver.ports.commands import Spoken
from palaver.ports.repositories import Store
from palaver.ports.work import Steps, work

__all__ = ["about_turns"]

_STOP = Command(name="stop", help="stop the answer that is being worked on", example="/stop", urgent=True)
_STATUS = Command(name="status", help="say what is going on in this conversation", example="/status", urgent=True)


def about_turns(store: Store) -> list[Performance]:
    @work
    def stop(_invocation: Invocation, spoken: Spoken) -> Steps[str]:
        stopped = yield from store.steering.request_stop(spoken.received.key, spoken.now, by=spoken.principal.name)
        return "Stopping." if stopped else "There is nothing to stop."

    @work
    def status(_invocation: Invocation, spoken: Spoken) -> Steps[str]:
        seen = yield from store.steering.status(spoken.received.key)
        if seen.session is None:
            return "There is no conversation yet: whatever you write starts one."
        doing = f"working on an answer since {seen.running_since:%H:%M:%S} UTC" if seen.running_since else "idle"
        title = seen.session.title or "untitled"
        waiting = f", {seen.waiting} waiting" if seen.waiting else ""
        return (
            f"{title} ({seen.session.id}): {doing}{waiting}; {seen.session.counters.turns} turns, "
            f"{seen.session.counters.input_tokens + seen.session.counters.output_tokens} tokens."
        )

    return [Performance(_STOP, stop), Performance(_STATUS, status)]
