"""`/pair`: list, approve and deny strangers who ask for access."""

from palaver.commands.formatting import ago
from palaver.commands.registry import CommandGroup, direct_chat_only
from palaver.db.transaction import Statements, transaction
from palaver.engine import texts
from palaver.engine.commands import CommandContext
from palaver.model.access import AccessRole
from palaver.model.command import Arg, Invocation, as_said
from palaver.model.errors import BadArgument, NotAllowed
from palaver.model.people import parse_code_or_identity
from palaver.model.source import account_name, named_identity, readable_identity
from palaver.model.text import counted, quoted
from palaver.platforms.plugins import known_platforms
from palaver.store.people.grants import Stranger
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.store import Store

commands = CommandGroup("people")

_MAX_LISTED = 20


@commands.add(
    "pair",
    "List who asks for access, or approve or deny one of them",
    "/pair approve telegram:7",
    Arg(name="action", choices=("approve", "deny")),
    Arg(name="who", hint="code or account"),
    Arg(name="role", choices=tuple(role.text for role in AccessRole)),
    role=AccessRole.OWNER,
    urgent=True,
)
@transaction
def pair(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    action, who, role = (invocation.words.get(name) for name in ("action", "who", "role"))
    if context.is_overheard and ":" not in (who or ""):
        raise direct_chat_only("/pair without an account", context.received.inbound.source.chat_kind)
    # Nobody finds the answer when a stranger it names is forgotten.
    yield from store.pairing.wipe_after_send(SendCause(CauseKind.COMMAND, context.received.number))
    if action is None:
        return _list((yield from store.pairing.list_pending(context.now)), context)
    if who is None or (action == "deny" and role):
        usage = "/pair approve telegram:7 member, or /pair deny telegram:7"
        problem = f"/pair {action} takes a code or an account{'' if action == 'deny' else ', and then a role'}."
        raise BadArgument(problem, found=role or "", allowed=usage, example=f"/pair {action} telegram:7")
    name = parse_code_or_identity(who, known_platforms())
    if action == "approve":
        answer = yield from _approve(store, name, AccessRole.parse(role or AccessRole.MEMBER.text), context)
    else:
        answer = yield from _deny(store, name, context)
    # An answer, not an error: a wrong code is counted only if the transaction is committed.
    return (
        answer or f"Nobody is asking for access as {as_said(quoted(who))}. Send /pair in a direct chat to list who is."
    )


def _list(waiting: list[Stranger], context: CommandContext) -> str:
    if not waiting:
        return "Nobody is asking for access."
    lines = [
        f"{as_said(named_identity(each.identity, each.name))}"
        f" at {account_name(each.source.platform, each.source.account)},"
        f" asked {ago(each.asked, context.now)}, {counted(each.kept, 'message')} waiting"
        for each in waiting[:_MAX_LISTED]
    ]
    more = len(waiting) - len(lines)
    return "\n".join(
        [
            "These people ask for access. They choose the names in quotes themselves.",
            *lines,
            *([f"And {more} more: palaver pair list"] if more > 0 else ()),
            f"/pair approve {readable_identity(waiting[0].identity)} gives access, /pair deny refuses.",
        ]
    )


def _approve(store: Store, name: str, role: AccessRole, context: CommandContext) -> Statements[str | None]:
    if role > (context.received.role or AccessRole.GUEST):
        raise NotAllowed(f"/pair approve {role.text}", role.text)
    stranger = yield from store.pairing.approve(
        name, role, context.now, by=context.principal.name, notice=texts.PAIRED, scope_of=context.scope_of
    )
    if stranger is None:
        return None
    called = as_said(named_identity(stranger.identity, stranger.name))
    return f"Approved {called} as {role.text}, with {counted(stranger.kept, 'message')} waiting."


def _deny(store: Store, name: str, context: CommandContext) -> Statements[str | None]:
    stranger = yield from store.pairing.deny(name, context.now, by=context.principal.name)
    if stranger is None:
        return None
    block = f"palaver grants add {readable_identity(stranger.identity)} --block"
    called = as_said(named_identity(stranger.identity, stranger.name))
    return f"Denied {called}. They can ask again in ten minutes; on the gateway's machine, `{block}` keeps them out."
