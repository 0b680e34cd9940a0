"""`palaver chat`: chat in the terminal, through the running gateway or one of its own."""

import asyncio
import getpass
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Annotated

import typer

from palaver.cli.gateway_client import GatewayClient, GatewayCrashed
from palaver.cli.loop import run
from palaver.cli.output import FAILED, INTERNAL, TEMPORARY, WRONG, print_error, print_note
from palaver.cli.shared_options import StoreOption, require_profile, terminal_source
from palaver.cli.up import config_file, configuration
from palaver.config.model import Config
from palaver.gateway.terminal import terminal_socket
from palaver.model.errors import BadArgument, PalaverError, StoreError, StoreInUse, StoreUnavailable
from palaver.model.key import choose_profile_rule
from palaver.model.redact import mask_keys
from palaver.model.source import MAIN
from palaver.model.text import escape_invisible, quoted
from palaver.model.value import value
from palaver.platforms.terminal.client import Client, GatewayFailing, PendingOffer, Screen, request_reload
from palaver.platforms.terminal.files import history_file
from palaver.platforms.terminal.pipe import PipeScreen, read_lines, say_all, say_one
from palaver.platforms.terminal.screen import LiveScreen
from palaver.protocols.background import BackgroundTasks
from palaver.settings.agents import BUILT_IN_AGENTS, AgentConfig

EXAMPLES = {"chat": 'palaver chat -m "What is on today?"'}
_INTERRUPTED = 130
_LONGEST_NAME = 100
_QUITTING = frozenset({"/quit", "/exit", "quit", "exit"})

app = typer.Typer(rich_markup_mode=None)

Chat = Annotated[str, typer.Option("--chat", metavar="NAME", help="Choose one of your terminal chats.")]
Profile = Annotated[str | None, typer.Option("--profile", metavar="NAME", help="Choose the profile that answers.")]
Attach = Annotated[
    str | None,
    typer.Option(
        "--attach", metavar="WHICH", help="First attach this chat to a conversation elsewhere, by title or id."
    ),
]
Message = Annotated[str | None, typer.Option("--message", "-m", help="Send this message, print the answer, and exit.")]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Use the key or the model server that is found here, without asking.")
]
AgentName = Annotated[
    str | None,
    typer.Option("--agent", metavar="NAME", help="Let a built-in agent answer: guide, echo or local."),
]
Window = Annotated[bool, typer.Option("--window", help="Also open the web window, if this starts a gateway.")]


@value
class _Opening:
    """What happens before the first message."""

    attach: str | None
    """Which conversation to attach first."""
    accepts: bool
    """Whether to use what is found to connect a model with."""
    window: bool


class _NotAttached(PalaverError):
    def __init__(self, which: str) -> None:
        super().__init__(f"the chat could not be attached to {quoted(which)}, so nothing was sent")


@app.command(
    help="Talk to the agent. Use the running gateway, or start one for as long as you talk. In a pipe,"
    f" answer every line.\n\n{EXAMPLES['chat']}"
)
def chat(
    *,
    chat: Chat = "main",
    profile: Profile = None,
    attach: Attach = None,
    message: Message = None,
    agent: AgentName = None,
    yes: Yes = False,
    window: Window = False,
    store: StoreOption = None,
) -> None:
    if message is not None and not message.strip():
        raise BadArgument("The message is empty.", found=message, allowed="some text", example=EXAMPLES["chat"])
    config = configuration(store)
    if agent is not None:
        config = config.model_copy(update={"agent": _built_in(agent)})
    name = _name(chat, profile, config)
    try:
        opening = _Opening(attach=attach, accepts=yes, window=window and config.web.enabled)
        run(_talk(config, name, opening, message, alone=agent is not None))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(_INTERRUPTED) from None
    except (StoreInUse, StoreUnavailable):
        raise
    except GatewayFailing as error:
        raise _left(error, TEMPORARY if error.passes else FAILED) from error
    except GatewayCrashed as error:
        raise _left(error, INTERNAL) from error
    except (StoreError, _NotAttached) as error:
        raise _left(error, WRONG) from error


def _built_in(name: str) -> AgentConfig:
    """Return the settings of an agent that needs none."""
    if name not in BUILT_IN_AGENTS:
        allowed = ", ".join(BUILT_IN_AGENTS)
        fix = f"Use one of {allowed}; palaver setup chooses others."
        raise BadArgument("--agent cannot be", found=name, allowed=allowed, example="echo", fix=fix)
    return BUILT_IN_AGENTS[name]()


def _name(chat: str, profile: str | None, config: Config) -> str:
    """Return the chat name on the wire. Without a profile, the rules choose it."""
    if profile is not None:
        require_profile(profile, config.profiles)
    settings = config.settings()
    rule = choose_profile_rule(terminal_source(chat, config.store), settings.profiles)
    if rule and profile == MAIN != rule.profile:
        problem = f"A rule ({settings.written_at(rule.origin)}) sends this chat to the profile {rule.profile}, not to"
        fix = f"Add a rule for the profile {MAIN} with this chat."
        raise BadArgument(problem, found=MAIN, allowed=rule.profile, example=rule.profile, fix=fix)
    name = terminal_source(chat, config.store, settings.profiles, profile or MAIN).chat_id or ""
    if not chat or "/" in chat or len(name) > _LONGEST_NAME or escape_invisible(chat) != chat:
        allowed = f"1 to {_LONGEST_NAME} characters, including the profile, without / and invisible ones"
        raise BadArgument("--chat cannot be", found=chat, allowed=allowed, example="work")
    return name


def _left(error: PalaverError, code: int) -> typer.Exit:
    print_error(str(error), as_json=False)
    return typer.Exit(code)


async def _talk(config: Config, name: str, opening: _Opening, message: str | None, *, alone: bool) -> None:
    for ending in (signal.SIGTERM, signal.SIGHUP):
        _on_signal(ending, _end_task())
    is_live = message is None and sys.stdin.isatty() and sys.stdout.isatty()
    async with GatewayClient(config, config_file(config.store), alone=alone) as gateway_client:
        if is_live:
            await _live(gateway_client, config, name, opening)
        else:
            gateway_client.window = print_note if opening.window else None
            await _through(gateway_client, name, opening, message)


def _on_signal(number: signal.Signals, act: Callable[[], object]) -> None:
    if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it
        asyncio.get_running_loop().add_signal_handler(number, act)


def _end_task() -> Callable[[], object]:
    """Return what ends the chat."""
    task = asyncio.current_task()
    return task.cancel if task else lambda: None


async def _through(gateway_client: GatewayClient, name: str, opening: _Opening, message: str | None) -> None:
    """Send one message, or every line of standard input."""
    screen = PipeScreen(sys.stdout, sys.stderr, accepts=opening.accepts)
    client = _client(gateway_client, name, screen, alone=True)

    async def talk() -> None:
        await _open(client, opening, screen.offer)
        if message is not None:
            await say_one(client, message, sys.stderr)
        elif not await say_all(client, read_lines(), sys.stderr, screen.offer):
            raise typer.Exit(WRONG)

    await _while_connected(gateway_client, client, talk())


async def _open(client: Client, opening: _Opening, offer: PendingOffer) -> None:
    """Attach first, or send nothing: the messages are not for the other conversation."""
    which = opening.attach
    if which is not None and not await say_one(client, f"/attach {which}", sys.stderr):
        raise _NotAttached(which)
    if opening.accepts and (accept := await offer.accepted()):
        await say_one(client, accept, sys.stderr)


async def _live(gateway_client: GatewayClient, config: Config, name: str, opening: _Opening) -> None:
    def interrupt() -> bool:
        if client.waits:
            client.say("/stop")
            return True
        return False

    def hang_up() -> None:
        """End with the terminal. While that is there, somebody asks to read the configuration again."""
        if sys.stdin.isatty():
            reloading.run(_reload(config, screen))
        else:
            end()

    end, reloading = _end_task(), BackgroundTasks()
    _on_signal(signal.SIGHUP, hang_up)
    screen = LiveScreen(history_file(config.data_dir), interrupt, accepts=opening.accepts)
    gateway_client.window = screen.tell if opening.window else None
    client = _client(gateway_client, name, screen)
    try:
        await _while_connected(gateway_client, client, _say(client, screen, opening))
    finally:
        await reloading.end()
        for text in map(mask_keys, client.unsent):
            print_error(f"Not sent, because no gateway was there: {quoted(text)}. Up brings it back.", as_json=False)


async def _reload(config: Config, screen: LiveScreen) -> None:
    told = await request_reload(terminal_socket(config))
    if told is None:
        screen.tell("No gateway is ready yet.")
    elif told.refused:
        screen.tell(f"The configuration stays as it was: {told.refused}")
    else:
        screen.tell("The configuration was read again.")


def _client(gateway_client: GatewayClient, name: str, screen: Screen, *, alone: bool = False) -> Client:
    return Client(gateway_client.connect, name, screen, _user(), alone=alone)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""  # a number without a name, as containers have it


async def _say(client: Client, screen: LiveScreen, opening: _Opening) -> None:
    try:
        await _open(client, opening, screen.offer)
    finally:
        screen.rest()
    async for line in screen.lines():
        if line.strip().lower() in _QUITTING:
            screen.refuse("Ctrl-D quits.")
            continue
        try:
            client.say(line)
        except BadArgument as error:
            screen.refuse(str(error))


async def _while_connected(gateway_client: GatewayClient, client: Client, talk: Coroutine[None, None, None]) -> None:
    """Run `talk` until it ends or no gateway can work."""
    tasks = {asyncio.create_task(each) for each in (client.run(), talk, gateway_client.outage())}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
