"""Run the script of a job in its turn, once: its output becomes a note to the agent, or the answer itself."""

import logging

from palaver.engine.context import EngineContext, Resources
from palaver.engine.jobs.scripts import ScriptResult
from palaver.engine.retry import log_error, retry_outage, retry_until_stored
from palaver.engine.turns.running import RunningTurn
from palaver.model.access import AccessRole
from palaver.model.errors import BadArgument
from palaver.model.firing import FiredJob
from palaver.model.redact import redact
from palaver.model.transcript import Entry, Role
from palaver.model.value import value
from palaver.protocols.agent import Failure, FailureKind, Final
from palaver.store.conversations import transcript

log = logging.getLogger(__name__)

_OUTPUT = "script"
"""What the note with the output answers: by this it is found again when the turn is resumed."""


@value(kw_only=False)
class JobScript:
    ctx: EngineContext
    resources: Resources
    running: RunningTurn
    job: FiredJob
    name: str

    async def run(self) -> Final | Failure | None:
        """Run the script, unless it ran before. Return what ends the turn; None if the agent goes on with the output.

        A script that was cut off is not run again: nobody knows what it did.
        """
        output = await self._earlier_output()
        if output is None and self.running.turn.attempt > 1:
            return _failure("the gateway was stopped while the script ran; it is not run again")
        if output is None:
            result = await self._execute()
            if isinstance(result, Failure):
                return result
            output = redact(result.output.strip())
            await self._write(result, output)
        return None if self.job.uses_model else Final(text=output)

    async def _execute(self) -> ScriptResult | Failure:
        if self.resources.scripts is None or self.running.role < AccessRole.ADMIN:
            return _failure("scripts are off, or the owner of the job is no longer an admin")
        try:
            result = await self.resources.scripts.run(self.name, self.job.number, self.job.workdir)
        except (BadArgument, OSError) as error:
            log_error(log, "a script did not start", error, {"action": "script.failed", "job": self.job.number})
            return _failure(f"the script did not start: {error}")
        log.info("a script ran", extra={"action": "script.ran", "job": self.job.number})
        if result.code is None:
            return _failure("the script took too long and was stopped")
        if result.code and not self.job.uses_model:
            return _failure(f"the script ended with exit code {result.code}")
        return result

    async def _earlier_output(self) -> str | None:
        turn, store = self.running.turn, self.ctx.store
        entries = await retry_outage(lambda: store.read(transcript.load_turn(turn.session_number, turn.number)))
        notes = [entry.text for entry in entries if entry.role is Role.NOTE and entry.answers == _OUTPUT]
        return notes[-1].partition("\n")[2] if notes else None

    async def _write(self, result: ScriptResult, output: str) -> None:
        """Show the output to the agent, after the gateway's own words."""
        ended = f" and ended with exit code {result.code}" if result.code else ""
        printed = f" printed this{ended}:\n{output}" if output else f" printed nothing{ended}."
        text = f"the script {self.name}{printed}"
        note = Entry(seq=0, role=Role.NOTE, at=self.ctx.clock.now(), text=text, answers=_OUTPUT)
        await retry_until_stored(self.ctx.store, self.ctx.store.turns.append_to_turn(self.running.turn, [note]))
        self.running.next_snapshot = None  # It does not have the note.


def _failure(detail: str) -> Failure:
    return Failure(kind=FailureKind.FATAL, detail=detail)
