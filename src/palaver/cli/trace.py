"""`palaver trace`: show what happened to a message, and settle unclear sends."""

from datetime import datetime, timedelta, tzinfo
from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.output import pick, print_found, print_heading, print_json, print_line, print_note, print_text
from palaver.cli.shared_options import OPERATOR, Json, Limit, Since, StoreOption, Until, ask_database, filled
from palaver.commands.formatting import ago
from palaver.commands.trace_steps import Tone, trace_steps, trace_title
from palaver.db.transaction import DatabaseClient, Transaction
from palaver.model.epochs import NO_EPOCHS, Epochs
from palaver.model.errors import BadArgument, NotFound, StoreError
from palaver.model.redact import redact
from palaver.model.text import counted, escape_invisible, one_line
from palaver.model.turn import OutboxState
from palaver.model.value import value
from palaver.store.archive.render import moment_text
from palaver.store.queue import outbox
from palaver.store.status.overview import list_stuck
from palaver.store.status.trace import NAMES, DeliveryTrace, InboundTrace, Trace, TurnTrace, find_traces

EXAMPLES = {
    "trace": "palaver trace in:42",
    "many": "palaver trace --state unclear --chat telegram:7 --again",
}

app = typer.Typer(rich_markup_mode=None)

Message = Annotated[str, typer.Argument(metavar="[MESSAGE]", help=f"{NAMES}.")]
Content = Annotated[bool, typer.Option("--content", help="Show the text too.")]
Delivered = Annotated[bool, typer.Option("--delivered", help="Settle an unclear send: it arrived.")]
Again = Annotated[bool, typer.Option("--again", help="Send it again: an unclear send, or one that was given up.")]
State = Annotated[str, typer.Option("--state", help="List all sends in this state: unclear or dead.", callback=filled)]
InChat = Annotated[
    str, typer.Option("--chat", help="With --state, only in this chat: telegram:7, telegram:BOT:7.", callback=filled)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be settled.")]

_STUCK = {state.value: state for state in (OutboxState.UNCLEAR, OutboxState.DEAD)}


@app.command(help=f"Trace what happened to a message, in or out.\n\n{EXAMPLES['trace']}\n\n{EXAMPLES['many']}")
def trace(
    message: Message = "",
    *,
    content: Content = False,
    state: State = "",
    chat: InChat = "",
    since: Since = "",
    until: Until = "",
    delivered: Delivered = False,
    again: Again = False,
    dry_run: DryRun = False,
    limit: Limit = 20,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    wanted = _parse_stuck(message, state, chat, since, until, dry_run=dry_run)
    if wanted:
        outcome = _outcome(delivered=delivered, again=again)
        _settle_many(store, wanted, outcome, dry_run=dry_run, limit=limit, json=json)
    else:
        _trace_one(store, message, content=content, delivered=delivered, again=again, limit=limit, json=json)


def _trace_one(
    store: str | None, message: str, *, content: bool, delivered: bool, again: bool, limit: int, json: bool
) -> None:
    async def load(opened: DatabaseClient) -> tuple[list[Trace], Epochs]:
        if delivered or again:
            await _settle(opened, message, delivered=delivered, again=again)
        return await _traces(opened, message, limit), opened.epochs

    traces, epochs = ask_database(store, load)
    if json:
        print_json({"asked": message, "traces": [_trace_fields(each, content=content) for each in traces]})
        return
    for number, each in enumerate(traces):
        if number:
            print_line("")
        print_trace(each, shared_options.local_now(), epochs, content=content)
    if not traces:
        print_note("This session has no turns yet.")


async def _traces(store: DatabaseClient, message: str, limit: int) -> list[Trace]:
    try:
        return await store.read(find_traces(message, OPERATOR, limit=limit))
    except NotFound as error:
        error.add_note(f"Use {NAMES} from palaver sessions list, for example {EXAMPLES['trace']}")
        raise


async def _settle(store: DatabaseClient, message: str, *, delivered: bool, again: bool) -> None:
    kind, number = store.epochs.find(message, bare=True) or ("", 0)
    if delivered == again or kind != "out":
        raise BadArgument(
            "Choose one send and one outcome, not",
            found=message if delivered != again else "--delivered --again",
            allowed="out:TURN.PART with --delivered or --again",
            example="palaver trace out:7.0 --delivered",
        )
    state = OutboxState.DELIVERED if delivered else OutboxState.DUE
    if not await store.transact(outbox.settle_unclear(number, state, shared_options.now())):
        raise StoreError(
            f"{message} is not an unclear send, so there is nothing to settle. See palaver trace {message}"
        )


# Many at once


@value
class _Stuck:
    """Which sends: those in a state, in one chat and of one time if they are named."""

    state: OutboxState
    chat: tuple[str, str | None, str] | None
    since: datetime | None
    until: datetime | None

    def find(self) -> Transaction[list[DeliveryTrace]]:
        platform, account, chat = self.chat or ("", None, None)
        return list_stuck(self.state, platform=platform, account=account, chat=chat, since=self.since, until=self.until)


def _parse_stuck(message: str, state: str, chat: str, since: str, until: str, *, dry_run: bool) -> _Stuck | None:
    """Return which sends are named by their state; None if a message is named instead."""
    if bool(message) == bool(state) or (message and (chat or since or until or dry_run)):
        raise BadArgument(
            "Name one message, or sends by --state with --chat, --since and --until, not",
            found=" and ".join(filter(None, (message, state and "--state"))) or "nothing",
            allowed="MESSAGE, or --state unclear or --state dead",
            example=EXAMPLES["many"],
        )
    if message:
        return None
    if state not in _STUCK:
        raise BadArgument("--state cannot be", found=state, allowed=" or ".join(_STUCK), example=EXAMPLES["many"])
    return _Stuck(
        state=_STUCK[state],
        chat=_parse_chat(chat),
        since=shared_options.moment("--since", since, EXAMPLES["many"]),
        until=shared_options.moment("--until", until, EXAMPLES["many"]),
    )


def _parse_chat(text: str) -> tuple[str, str | None, str] | None:
    """Parse `platform:chat` or `platform:account:chat`."""
    platform, colon, rest = text.partition(":")
    account, more, chat = rest.rpartition(":")
    if text and not (platform and colon and chat):
        allowed = "platform:chat or platform:account:chat"
        raise BadArgument("--chat cannot be", found=text, allowed=allowed, example="--chat telegram:7")
    return (platform, account if more else None, chat) if text else None


def _outcome(*, delivered: bool, again: bool) -> OutboxState | None:
    if delivered and again:
        raise BadArgument(
            "Choose one outcome, not",
            found="--delivered --again",
            allowed="--delivered or --again",
            example=EXAMPLES["many"],
        )
    return OutboxState.DELIVERED if delivered else OutboxState.DUE if again else None


def _settle_many(
    store: str | None, wanted: _Stuck, outcome: OutboxState | None, *, dry_run: bool, limit: int, json: bool
) -> None:
    if outcome is OutboxState.DELIVERED and wanted.state is OutboxState.DEAD:
        raise BadArgument(
            "What was given up cannot be", found="--delivered", allowed="--again", example="palaver trace --state dead"
        )

    async def settle(opened: DatabaseClient) -> tuple[list[DeliveryTrace], int, Epochs]:
        found = await opened.read(wanted.find())
        if outcome is None or dry_run:
            return found, 0, opened.epochs
        numbers = [each.delivery.number for each in found]
        done = await opened.transact(outbox.settle_by_hand(numbers, wanted.state, outcome, shared_options.now()))
        return found, len(done), opened.epochs

    found, settled, epochs = ask_database(store, settle)
    sends, zone = found[:limit], shared_options.local_now().tzinfo
    fields = {"found": len(found), "settled": settled, "sends": [_sending_fields(each) for each in sends]}
    print_found(
        fields, ("send", "queued", "to", "error"), [_stuck_row(each, zone, epochs) for each in sends], as_json=json
    )
    if not json:
        print_line(_summary(len(found), settled, wanted.state, outcome, dry_run=dry_run))


def _stuck_row(stuck: DeliveryTrace, zone: tzinfo | None, epochs: Epochs) -> tuple[str, ...]:
    send, to = stuck.delivery, stuck.delivery.outbound
    error = one_line(redact(send.error or ""), _ERROR_CHARACTERS)
    return epochs.send(send.number), moment_text(send.created, zone), f"{to.platform} chat {to.chat_id}", error


def _summary(found: int, settled: int, state: OutboxState, outcome: OutboxState | None, *, dry_run: bool) -> str:
    sends = counted(found, "send")
    if outcome is None:
        return f"{sends} {_FOUND[state]}"
    if dry_run:
        return f"{sends} would be {_SETTLED[outcome]}."
    return f"{counted(settled, 'send')} {_SETTLED[outcome]}."


_FOUND = {
    OutboxState.UNCLEAR: "may or may not have arrived. Add --again to send again, or --delivered if people have it.",
    OutboxState.DEAD: "given up. Add --again to send again.",
}
_SETTLED = {OutboxState.DELIVERED: "settled as delivered", OutboxState.DUE: "sent again"}
_ERROR_CHARACTERS = 100


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


def _sending_fields(sending: DeliveryTrace, *, content: bool = False) -> dict[str, object]:
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


def print_trace(trace: Trace, present: datetime, epochs: Epochs = NO_EPOCHS, *, content: bool) -> None:
    steps = trace_steps(trace, present, epochs)
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
