"""Show an answer in the chat while it grows, and the tools that run meanwhile."""

from collections.abc import Sequence

from palaver.engine.context import EngineContext, LiveState
from palaver.engine.delivery.drafts import Draft
from palaver.engine.hooks import PartialAnswer
from palaver.engine.turns.progress import ToolProgress
from palaver.engine.turns.running import RunningTurn
from palaver.model.source import DM


def show_answer(ctx: EngineContext, live: LiveState, running: RunningTurn, text: str) -> None:
    """Show the answer so far."""
    if running.is_over or not running.is_held(ctx.clock.now()):
        return
    if watch := ctx.hooks.watch:
        said = running.agent_run.said if running.agent_run else ()
        turn = running.turn
        watch(PartialAnswer(session=turn.session, turn=turn.number, text=text, earlier=tuple(said)))
    if running.progress is not None:
        running.progress.end()
    if running.draft is None:
        running.draft = _draft(ctx, live, running)
    if running.draft is not None:
        running.draft.show(text)


def show_tools(ctx: EngineContext, live: LiveState, running: RunningTurn, names: Sequence[str]) -> None:
    running.progress = running.progress or _progress(ctx, live, running)
    if running.progress is not None:
        running.progress.update(names)


def _progress(ctx: EngineContext, live: LiveState, running: RunningTurn) -> ToolProgress | None:
    """Show the tools of a turn with the typing indicator, where that has words, or else in the draft."""
    adapter = ctx.replies.adapter_for(running.source.platform, running.source.account)
    if adapter is None or running.typing is None or not ctx.settings.progress.find(running.source):
        return None

    def report(line: str) -> None:
        if running.is_over or running.typing is None or not running.is_held(ctx.clock.now()):
            return
        if adapter.limits.typing_has_words:
            running.typing.say(line)
        elif line:
            running.draft = running.draft or _draft(ctx, live, running)
            if running.draft is not None:
                running.draft.show_progress(line)

    return ToolProgress(report, running.call_progress)


def _draft(ctx: EngineContext, live: LiveState, running: RunningTurn) -> Draft | None:
    store, source, turn = ctx.store, running.source, running.turn
    if running.job or running.is_notice:  # It may turn out to be silent.
        return None
    adapter = ctx.replies.adapter_for(source.platform, source.account)
    parts = ctx.replies.to(source, "…")
    if adapter is None or not parts:
        return None

    departures, slot = live.departures, 0

    async def store_receipt(receipt: str | None) -> None:
        nonlocal slot
        await store.transact(store.turn_control.save_draft(turn, receipt))
        departures.end(slot)
        slot = 0

    async def begin() -> bool:
        nonlocal slot
        is_first = not (slot or turn.draft_unclear)  # only of that can it be known that it was kept back
        if is_first:
            slot = departures.keep_back("draft", turn.number, turn.fence)
        may_leave = await store.transact(store.turn_control.begin_draft(turn, parts[0]))
        if may_leave:
            departures.leave(slot)
        elif is_first:
            departures.end(slot)
            slot = 0
        return may_leave

    return Draft(
        adapter,
        parts[0],
        live.budget,
        store_receipt=store_receipt,
        begin=begin,
        receipt=turn.draft,
        is_unclear=turn.draft_unclear,
        idempotency_key=turn.draft_key,
        timeout=ctx.settings.limits.send_limit.total_seconds(),
        is_group=source.chat_kind != DM,
    )
