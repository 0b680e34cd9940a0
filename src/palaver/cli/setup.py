"""`palaver setup`: choose the agent and connect chat apps, from numbered lists or by options."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from palaver.agents.hub import HUB, ModelHub, NotDownloaded
from palaver.cli import prompts, shared_options
from palaver.cli.account_wizard import choose_platform, draft_account, install_missing
from palaver.cli.loop import run
from palaver.cli.model_wizard import ask_agent_plan, local_plan
from palaver.cli.output import print_json, print_line
from palaver.cli.probe import NotReached, try_out
from palaver.cli.prompts import Cancelled, agrees, ask_for, say
from palaver.cli.shared_options import OPERATOR, Json, ask
from palaver.config.account_draft import AccountDraft, check_owner
from palaver.config.agent_plan import GUIDE, LOCAL, MODEL, AgentPlan, parse_agent, with_key
from palaver.config.agent_trial import trial_agent
from palaver.config.loader import load
from palaver.config.paths import configuration_files, exists
from palaver.config.writer import has_value, replace_file, replace_value
from palaver.gateway.agents import build_agent
from palaver.gateway.terminal import terminal_socket
from palaver.model.access import AccessRole, Grant
from palaver.model.errors import BadArgument, InvalidInput
from palaver.model.local_time import parse_zone
from palaver.platforms.terminal.client import request_reload
from palaver.platforms.terminal.wire import Reloaded
from palaver.protocols.agent import Agent
from palaver.protocols.installation import MissingPackages
from palaver.store.people import grants

EXAMPLES = {
    "setup": "palaver setup --agent model --model openai:gpt-5-mini --key-env OPENAI_API_KEY --yes",
    "local": "palaver setup --agent local --model qwen3-4b --yes",
    "account": "palaver setup telegram --set token_file=~/token --owner 7",
}

_SPECIAL = "Only "
"""How a step begins that not everybody needs."""

app = typer.Typer(rich_markup_mode=None)

PlatformName = Annotated[
    str, typer.Argument(metavar="[PLATFORM]", help="The platform to connect; without it, choose the agent first.")
]
AccountOption = Annotated[str, typer.Option("--account", metavar="NAME", help="Name the account.")]
SetOption = Annotated[
    list[str], typer.Option("--set", metavar="OPTION=VALUE", help="Set an option of the account. Repeat for several.")
]
OwnerOption = Annotated[str, typer.Option("--owner", metavar="ID", help="Your own user id on the platform.")]
AgentOption = Annotated[str, typer.Option("--agent", help="Choose the agent: guide, local or model.")]
ModelOption = Annotated[
    str,
    typer.Option("--model", metavar="PROVIDER:MODEL", help="Choose the model; with --agent local, a name or a file."),
]
HubOption = Annotated[
    str,
    typer.Option("--hub", metavar="URL", envvar="HF_ENDPOINT", help="Download a local model from this address."),
]
UrlOption = Annotated[str, typer.Option("--base-url", metavar="URL", help="Use this OpenAI-compatible server.")]
VariableOption = Annotated[
    str, typer.Option("--key-env", metavar="NAME", help="Read the key from this environment variable.")
]
FileOption = Annotated[str, typer.Option("--key-file", metavar="FILE", help="Read the key from this file.")]
ZoneOption = Annotated[
    str, typer.Option("--timezone", metavar="ZONE", help="Set the time zone, for example Europe/Berlin.")
]
Untested = Annotated[bool, typer.Option("--no-test", help="Do not test the agent or the account.")]
Install = Annotated[bool, typer.Option("--install", help="Install missing packages without asking.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Replace existing settings without asking.")]


@app.command(
    help="Choose the model and connect chat apps, from numbered lists, and write the configuration."
    f"\n\n{EXAMPLES['setup']}\n\n{EXAMPLES['account']}"
)
def setup(
    platform: PlatformName = "",
    *,
    account: AccountOption = "main",
    given: SetOption = [],  # noqa: B006 - it is only read
    owner: OwnerOption = "",
    agent: AgentOption = "",
    model: ModelOption = "",
    base_url: UrlOption = "",
    hub: HubOption = HUB,
    key_env: VariableOption = "",
    key_file: FileOption = "",
    timezone: ZoneOption = "",
    no_test: Untested = False,
    install: Install = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    file = configuration_files(Path.cwd()).user
    models = load(Path.cwd(), draft=_content(file)).data_dir / "models"
    steps = _Setup(
        file=file,
        hub=ModelHub(url=hub.rstrip("/"), folder=models),
        account=account,
        tests=not no_test,
        installs=install,
        yes=yes,
        json=json,
    )
    try:
        if platform:
            steps.connect(platform, given, owner)
        elif agent or model:
            if agent == LOCAL and model:
                plan = local_plan(model, steps.hub, installs=install, agreed=yes)
            else:
                plan = _plan(agent, model, base_url, key_env, key_file)
            steps.use(replace(plan, timezone=parse_zone(timezone).key if timezone else ""))
        elif prompts.is_interactive():
            steps.walk()
        else:
            raise BadArgument(
                "There is no terminal to ask which agent to use.",
                found="no --agent",
                allowed="--agent guide, --agent local, or --agent model with --model and --key-env or --key-file",
                example=EXAMPLES["setup"],
            )
    except KeyboardInterrupt:
        raise Cancelled from None


def _plan(agent: str, model: str, base_url: str, key_env: str, key_file: str) -> AgentPlan:
    if agent == MODEL and not model:
        allowed = "--model provider:model"
        raise BadArgument("--agent model needs --model.", found="", allowed=allowed, example=EXAMPLES["setup"])
    name = " ".join(filter(None, (model, base_url))) if agent in {"", MODEL} else agent
    return with_key(parse_agent(name), key_env, key_file)


@dataclass(kw_only=True)
class _Setup:
    """One run of the command. Each part is written whole, after all of its questions."""

    file: Path
    hub: ModelHub
    account: str
    tests: bool
    installs: bool
    yes: bool
    json: bool

    def walk(self) -> None:
        """Ask for the agent, then for a chat app."""
        before = _content(self.file)
        say("Set up Palaver. Enter ? at a question for help, or press Ctrl-C to stop.")
        state = "Nothing was changed."
        if self.yes or not has_value(before, ("agent",)) or agrees(_replaces(self.file, "sets the agent"), usual=False):
            plan = self._ask_for_agent()
            state = f"The agent is saved. {self._write(before, plan)}"
        try:
            platform = choose_platform()
            if platform:
                self.connect(platform, (), "")
                return
        except (Cancelled, KeyboardInterrupt):
            raise Cancelled(kept=f"No chat app was connected. {state}") from None
        say(f"No chat app was connected. {state}")

    def use(self, plan: AgentPlan) -> None:
        before = _content(self.file)
        self._confirm("sets the agent", there=has_value(before, ("agent",)))
        self._try(plan)
        self._write(before, plan)

    def connect(self, platform: str, given: Sequence[str], owner: str) -> None:
        """Connect an account of a platform."""
        before = _content(self.file)
        way = ("platforms", platform, "accounts", self.account)
        self._confirm(f"has {platform}:{self.account}", there=has_value(before, way))
        draft = draft_account(platform, self.account, given, tests=self.tests, installs=self.installs)
        owner = _owner(draft, owner)
        _write_account(self.file, before, draft, owner)
        _report_account(self.file, draft, owner, json=self.json)

    def _confirm(self, what: str, *, there: bool) -> None:
        """Ask before replacing existing settings."""
        if self.yes or not there:
            return
        if not prompts.is_interactive():
            raise BadArgument(f"{self.file} already {what}.", found="", allowed="--yes to replace it", example="--yes")
        if not agrees(_replaces(self.file, what), usual=False):
            raise Cancelled

    def _ask_for_agent(self) -> AgentPlan:
        plan = AgentPlan(agent="")
        while True:
            try:
                plan = ask_agent_plan(self.hub, plan, installs=self.installs)
                self._try(plan)
            except (InvalidInput, NotReached, NotDownloaded) as problem:
                say(str(problem))
                if not agrees("Try again?", usual=True):
                    raise Cancelled from None
            else:
                return plan

    def _try(self, plan: AgentPlan) -> None:
        """Raise InvalidInput if the agent cannot be built, NotReached if it does not answer."""
        try:
            self._try_once(plan)
        except MissingPackages as missing:
            install_missing(missing, installs=self.installs)
            self._try_once(plan)

    def _try_once(self, plan: AgentPlan) -> None:
        def build() -> Agent:
            return build_agent(trial_agent(plan))

        if self.tests and plan.agent != GUIDE:
            try_out(build, plan.model or "The local model", plan.key)
        else:
            build()

    def _write(self, before: str, plan: AgentPlan) -> str:
        """Write the agent, make the gateway use it, and return what to do next."""
        after = replace_value(before, ("agent",), plan.fields())
        if plan.timezone:
            after = replace_value(after, ("timezone",), plan.timezone)
        load(Path.cwd(), draft=after)  # before anything is replaced
        if plan.key and plan.key_file and not Path(plan.key_file).is_absolute():
            replace_file(self.file.parent / plan.key_file, f"{plan.key}\n", private=True)
        replace_file(self.file, after)
        reloaded = _reload_gateway()
        _report(self.file, plan, reloaded, tested=self.tests, json=self.json)
        return _next_step(reloaded)


def _replaces(file: Path, what: str) -> str:
    return f"{file} already {what}. Replace it?"


def _content(file: Path) -> str:
    """Return the file's content; raise MalformedConfig if it is not valid."""
    if not exists(file):
        return ""
    load(Path.cwd())
    return file.read_bytes().decode("utf-8-sig")


# What is written


def _write_account(file: Path, before: str, draft: AccountDraft, owner: str) -> None:
    """Write the account and the grant of its owner."""
    after = replace_value(before, draft.path, draft.fields)
    load(Path.cwd(), draft=after)  # before anything is replaced
    for name, secret in draft.files.items():
        replace_file(file.parent / name, f"{secret}\n", private=True)
    replace_file(file, after)
    if owner:
        grant = Grant(role=AccessRole.OWNER, platform=draft.platform, user_id=owner)
        ask(None, lambda opened: opened.transact(grants.add(grant, shared_options.now(), by=OPERATOR.name)), make=True)


def _owner(draft: AccountDraft, said: str) -> str:
    """Return the owner's user id, or "" if it is not known."""
    guide = draft.guide
    if said or not guide.owner_prompt or not prompts.is_interactive():
        return check_owner(draft, said)
    example = f" Example: {guide.owner_example}." if guide.owner_example else ""
    return ask_for(
        f"{guide.owner_prompt} Leave empty to pair with a code later:",
        "",
        lambda owner: check_owner(draft, owner),
        help=f"The owner can do everything with this agent. With a code, you become it by writing to it.{example}",
    )


def _reload_gateway() -> Reloaded | None:
    """Make the gateway that runs on this store read the configuration again; return None if there is none."""
    return run(request_reload(terminal_socket(load(Path.cwd()))))


def _report_account(file: Path, draft: AccountDraft, owner: str, *, json: bool) -> None:
    reloaded = _reload_gateway()
    name = f"{draft.platform}:{draft.account}"
    files = [str(file.parent / each) for each in draft.files]
    if json:
        said = {"file": str(file), "account": name, "options": draft.fields, "secrets": files}
        print_json({"ok": True, **said, "known_as": draft.known_as or None, "owner": owner or None})
        return
    secrets = f" Only you can read its secrets, in {', '.join(files)}." if files else ""
    owned = f" {draft.platform}:{owner} is its owner." if owner else ""
    everybody = [step for step in draft.next_steps if not step.startswith(_SPECIAL)]
    todo = [*everybody]
    if draft.guide.owner_prompt and not owner:
        todo.append("To become its owner, write to it and enter its code here: palaver pair approve CODE --role owner")
    todo += [step for step in draft.next_steps if step not in everybody]
    print_line(f"Added {name} to {file}{f': {draft.known_as}' if draft.known_as else ''}.{secrets}{owned}")
    start = "No gateway runs here. Next: run palaver up, or make run in a checkout."
    restart = "Next: restart the running gateway, which connects accounts when it starts."
    print_line(f"{restart if reloaded else start}{' Then:' if todo else ''}")
    for number, step in enumerate(todo, 1):
        print_line(f"  {number}. {step}" if len(todo) > 1 else f"  {step}")


def _report(file: Path, plan: AgentPlan, reloaded: Reloaded | None, *, tested: bool, json: bool) -> None:
    was_asked = tested and plan.agent != GUIDE
    if json:
        said = {"file": str(file), "agent": plan.fields(), "timezone": plan.timezone or None}
        used = None if reloaded is None else {"reloaded": not reloaded.refused, "refused": reloaded.refused}
        print_json({"ok": True, **said, "tested": was_asked, "gateway": used})
        return
    who = plan.model or Path(plan.file).stem or {LOCAL: "the local model"}.get(plan.agent, plan.agent)
    key = ""
    if plan.key_variable:
        key = f" The key stays in {plan.key_variable}, which must be set where Palaver runs."
    elif plan.key_file:
        key = f" The key is in {file.parent / plan.key_file}."
    print_line(
        f"{file}: {who} answers from now on{'. The test succeeded' if was_asked else ''}.{key} {_next_step(reloaded)}"
    )


def _next_step(reloaded: Reloaded | None) -> str:
    if reloaded is None:
        return "No gateway runs here. Next: run palaver chat to talk to it, or palaver up to run the gateway."
    if reloaded.refused:
        return f"The running gateway stays as it was: {reloaded.refused}"
    return "The running gateway uses it now."
