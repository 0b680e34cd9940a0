"""`palaver trace`: show what happened to a message, and settle unclear sends."""

import re
from datetime import datetime, timedelta
from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.output import pick, print_heading, print_json, print_line, print_note, print_text
from palaver.cli.shared_options import OPERATOR, Json, Limit, StoreOption, ask
from palaver.commands.formatting import Tone, ago, trace_steps, trace_title
from palaver.model.errors import BadArgument, NotFound, StoreError
from palaver.model.text import escape_invisible
from palaver.model.turn import OutboxState
from palaver.store.archive.render import moment_text
from palaver.store.queue import outbox
from palaver.store.status.trace import NAMES, DeliveryTrace, InboundTrace, Trace, TurnTrace, find_traces
from palaver.store.store import Store

EXAMPLES = {"trace": "palaver trace in:42"}

app = typer.Typer(rich_markup_mode=None)

Message = Annotated[str, typer.Argument(metavar="MESSAGE", help=f"{NAMES}.")]
Content = Annotated[bool, typer.Option("--content", help="Show the text too.")]
Delivered = Annotated[bool, typer.Option("--delivered", help="Settle an unclear send: it arrived.")]
Again = Annotated[bool, typer.Option("--again", help="Settle an unclear send: send it again.")]


@app.command(help=f"Trace what happened to a message, in or out.\n\n{EXAMPLES['trace']}")
def trace(
    message: Message,
    *,
    content: Content = False,
    delivered: Delivered = False,
    again: Again = False,
    limit: Limit = 20,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    async def load(opened: Store) -> list[Trace]:
        if delivered or again:
            await _settle(opened, message, delivered=delivered, again=again)
        return await _traces(opened, message, limit)

    traces = ask(store, load)
    if json:
        print_json({"asked": message, "traces": [_trace_fields(each, content=content) for each in traces]})
        return
    for number, each in enumerate(traces):
        if number:
            print_line("")
        print_trace(each, shared_options.local_now(), content=content)
    if not traces:
        print_note("This session has no turns yet.")


async def _traces(store: Store, message: str, limit: int) -> list[Trace]:
    try:
        return await store.read(find_traces(message, OPERATOR, limit=limit))
    except NotFound as error:
        error.add_note(f"Use {NAMES} from palaver sessions list, for example {EXAMPLES['trace']}")
        raise


async def _settle(store: Store, message: str, *, delivered: bool, again: bool) -> None:
    named = re.fullmatch(r"out:(-?[0-9]{1,18})", message)
    if delivered == again or named is None:
        raise BadArgument(
            "Choose one send and one outcome, not",
            found=message if delivered != again else "--delivered --again",
            allowed="out:N with --delivered or --again",
            example="palaver trace out:7168 --delivered",
        )
    state = OutboxState.DELIVERED if delivered else OutboxState.DUE
    if not await store.transact(outbox.settle_unclear(int(named[1]), state, shared_options.now())):
        raise StoreError(
            f"{message} is not an unclear send, so there is nothing to settle. See palaver trace {message}"
        )


# For machines


def _trace_fields(trace: Trace, *, content: bool) -> dict[str, object]:
    return {
        "messages": [_arrival_fields(arrival, content=content) for arrival in trace.messages],
        "turn": trace.turn and _run_fields(trace.turn, content=content),
        "sends": [_sending_fields(sending, content=content) for sending in trace.deliveries],
    }


def _arrival_fields(arrival: InboundTrace, *, content: bool) -> dict[str, object]:
    inbound = arrival.inbound
    fields: dict[str, object] = {
        **pick(arrival, "number key place state received"),
        "said": inbound and inbound.at,
        "source": inbound and inbound.source.to_json(),
        "role": arrival.role and arrival.role.text,
        **pick(arrival, "reason behind_turn behind withdrew answered"),
    }
    if inbound and inbound.revision:
        fields["changes"] = "deletion" if inbound.revision.deleted else "edit"
    return fields | ({"text": inbound.text, "earlier": inbound.earlier} if content and inbound else {})


_USAGE = "model input_tokens output_tokens cached_tokens cost_micros unpriced_tokens"


def _run_fields(run: TurnTrace, *, content: bool) -> dict[str, object]:
    return {
        **pick(run.turn, "number session state attempt worker lease_until started halted"),
        **pick(run, "ended stop withdrawn_by reset session_before"),
        "error": run.turn.error,
        **pick(run.usage, f"{_USAGE} prompt_tokens"),
        "title": run.title_usage and {"at": run.titled_at, **pick(run.title_usage, _USAGE)},
        "entries": [pick(entry, "seq role at text" if content else "seq role at") for entry in run.entries],
        "processes": [
            pick(each, "name state started exit_code command" if content else "name state started exit_code")
            for each in run.processes
        ],
    }


def _sending_fields(sending: DeliveryTrace, *, content: bool) -> dict[str, object]:
    delivery, outbound = sending.delivery, sending.delivery.outbound
    fields = {
        **pick(sending, "why worker claim_until"),
        **pick(delivery, "number state attempts created due receipt error may_be_duplicate"),
        **pick(outbound, "platform account"),
        "chat": outbound.chat_id,
        "thread": outbound.thread_id,
    }
    return fields | ({"text": outbound.text} if content else {})


_STYLES = {Tone.PLAIN: "", Tone.WELL: "green", Tone.OPEN: "yellow", Tone.BAD: "bold red"}
_MINUTE = 60


def print_trace(trace: Trace, present: datetime, *, content: bool) -> None:
    steps = trace_steps(trace, present)
    began = steps[0].at
    print_heading(escape_invisible(trace_title(trace)))
    print_text((f"{moment_text(began, present.tzinfo)} ({ago(began, present)})", "dim"))
    width = max(len(step.what) for step in steps)
    for step in steps:
        offset = _offset(step.at - began) if step.exact else ""
        print_text(
            (f"{offset:>9}  ", "dim"),
            (f"{step.what:<{width}}  ", "cyan"),
            (escape_invisible(step.sentence), _STYLES[step.tone]),
        )
        if content and step.text:
            for line in step.text.splitlines():
                print_text((" " * (width + 13), ""), (escape_invisible(line), "italic"))


def _offset(span: timedelta) -> str:
    seconds = span.total_seconds()
    return f"+{seconds:.2f} s" if abs(seconds) < _MINUTE else f"+{timedelta(seconds=round(seconds))}"
