"""`palaver setup`: ask a few questions and write the configuration of an agent or a platform account."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.account_wizard import Cancelled, ask_for, draft_account, is_interactive
from palaver.cli.output import confirmed, print_json, print_line
from palaver.cli.probe import try_out
from palaver.cli.shared_options import OPERATOR, Json, ask
from palaver.config.account_draft import AccountDraft, check_owner
from palaver.config.agent_plan import (
    AGENT_FORMS,
    GUIDE,
    LOCAL,
    MODEL,
    AgentPlan,
    parse_agent,
    take_key,
    usual_variables,
    with_key,
)
from palaver.config.agent_trial import trial_agent
from palaver.config.loader import load
from palaver.config.paths import configuration_files, exists
from palaver.config.writer import has_value, replace_file, replace_value
from palaver.gateway.agents import build_agent
from palaver.model.access import AccessRole, Grant
from palaver.model.errors import BadArgument, InvalidInput
from palaver.model.local_time import parse_zone
from palaver.store.people import grants

EXAMPLES = {
    "setup": "palaver setup --agent model --model openai:gpt-5-mini --key-env OPENAI_API_KEY --yes",
    "account": "palaver setup telegram --set token_file=~/token --owner 7",
}

app = typer.Typer(rich_markup_mode=None)

PlatformName = Annotated[
    str, typer.Argument(metavar="[PLATFORM]", help="The platform to connect; without it, choose the agent.")
]
AccountOption = Annotated[str, typer.Option("--account", metavar="NAME", help="Name the account.")]
SetOption = Annotated[
    list[str], typer.Option("--set", metavar="OPTION=VALUE", help="Set an option of the account. Repeat for several.")
]
OwnerOption = Annotated[str, typer.Option("--owner", metavar="ID", help="Your own user id on the platform.")]
AgentOption = Annotated[str, typer.Option("--agent", help="Choose the agent: guide, local or model.")]
ModelOption = Annotated[str, typer.Option("--model", metavar="PROVIDER:MODEL", help="Choose the model.")]
UrlOption = Annotated[str, typer.Option("--base-url", metavar="URL", help="Use this OpenAI-compatible server.")]
VariableOption = Annotated[
    str, typer.Option("--key-env", metavar="NAME", help="Read the key from this environment variable.")
]
FileOption = Annotated[str, typer.Option("--key-file", metavar="FILE", help="Read the key from this file.")]
ZoneOption = Annotated[
    str, typer.Option("--timezone", metavar="ZONE", help="Set the time zone, for example Europe/Berlin.")
]
Untested = Annotated[bool, typer.Option("--no-test", help="Do not test the agent or the account.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Replace existing settings without asking.")]


@app.command(
    help="Choose the agent or connect a platform account, and write the configuration."
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
    key_env: VariableOption = "",
    key_file: FileOption = "",
    timezone: ZoneOption = "",
    no_test: Untested = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    file = configuration_files(Path.cwd()).user
    before = _content(file)
    if platform:
        way = ("platforms", platform, "accounts", account)
        _confirm_replace(file, f"has {platform}:{account}", there=has_value(before, way), yes=yes)
        draft = draft_account(platform, account, given, tests=not no_test)
        owner = _owner(draft, owner)
        _write_account(file, before, draft, owner)
        _report_account(file, draft, owner, json=json)
        return
    _confirm_replace(file, "sets the agent", there=has_value(before, ("agent",)), yes=yes)
    if agent == MODEL and not model:
        allowed = "--model provider:model"
        raise BadArgument("--agent model needs --model.", found="", allowed=allowed, example=EXAMPLES["setup"])
    if agent or model:
        name = " ".join(filter(None, (model, base_url))) if agent in {"", MODEL} else agent
        plan = with_key(parse_agent(name), key_env, key_file)
        plan = replace(plan, timezone=parse_zone(timezone).key if timezone else "")
    elif is_interactive():
        plan = _ask_plan()
    else:
        raise BadArgument(
            "There is no terminal to ask which agent to use.",
            found="no --agent",
            allowed="--agent guide, --agent local, or --agent model with --model and --key-env or --key-file",
            example=EXAMPLES["setup"],
        )
    _try(plan, asks=not no_test)
    _write(file, before, plan)
    _report(file, plan, tested=not no_test, json=json)


def _content(file: Path) -> str:
    """Return the file's content; raise MalformedConfig if it is not valid."""
    if not exists(file):
        return ""
    load(Path.cwd())
    return file.read_bytes().decode("utf-8-sig")


# What is asked


def _ask_plan() -> AgentPlan:
    plan = ask_for(f"Which agent answers? {AGENT_FORMS}:", LOCAL, parse_agent)
    if plan.agent == MODEL:
        usual = next((name for name in usual_variables(plan.provider) if os.environ.get(name)), "")
        question = f"The key for {plan.provider} (hidden while you type), or the variable that holds it:"
        plan = ask_for(question, usual, lambda said: take_key(plan, said), secret=True)
    return replace(plan, timezone=ask_for("Your time zone?", zone_here(), lambda said: parse_zone(said).key))


def zone_here(link: Path = Path("/etc/localtime")) -> str:
    """Return the time zone of this machine, or UTC."""
    named = os.environ.get("TZ") or str(link.resolve()).rpartition("zoneinfo/")[2]
    try:
        return parse_zone(named).key
    except InvalidInput:
        return "UTC"


# What is done


def _confirm_replace(file: Path, what: str, *, there: bool, yes: bool) -> None:
    """Ask before replacing existing settings."""
    if yes or not there:
        return
    if not is_interactive():
        raise BadArgument(f"{file} already {what}.", found="", allowed="--yes to replace it", example="--yes")
    if not confirmed(f"{file} already {what}. Replace it?"):
        raise Cancelled


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

    if said or not guide.owner_prompt or not is_interactive():
        return check_owner(draft, said)
    return ask_for(
        f"{guide.owner_prompt} Leave empty to pair with a code later:", "", lambda owner: check_owner(draft, owner)
    )


def _report_account(file: Path, draft: AccountDraft, owner: str, *, json: bool) -> None:
    name = f"{draft.platform}:{draft.account}"
    files = [str(file.parent / each) for each in draft.files]
    if json:
        said = {"file": str(file), "account": name, "options": draft.fields, "secrets": files}
        print_json({"ok": True, **said, "known_as": draft.known_as or None, "owner": owner or None})
        return
    print_line(f"Added {name} to {file}{f': {draft.known_as}' if draft.known_as else ''}.")
    for each in files:
        print_line(f"Its secret is in {each}, which only you can read.")
    if draft.guide.after:
        print_line(draft.guide.after.replace("{account}", draft.account))
    if draft.guide.owner_prompt:
        later = "write to it and use the code it gives you: palaver pair approve CODE --role owner"
        print_line(f"{draft.platform}:{owner} is its owner." if owner else f"To become its owner, {later}")
    print_line("Next: run palaver up, or restart the gateway if it is running.")


def _try(plan: AgentPlan, *, asks: bool) -> None:
    """Raise InvalidInput if the agent cannot be built, NotReached if it does not answer."""
    agent = build_agent(trial_agent(plan))
    if asks and plan.agent != GUIDE:
        try_out(agent, plan.model or "The local model", plan.key)


def _write(file: Path, before: str, plan: AgentPlan) -> None:
    after = replace_value(before, ("agent",), plan.fields())
    if plan.timezone:
        after = replace_value(after, ("timezone",), plan.timezone)
    load(Path.cwd(), draft=after)  # before anything is replaced
    if plan.key and plan.key_file and not Path(plan.key_file).is_absolute():
        replace_file(file.parent / plan.key_file, f"{plan.key}\n", private=True)
    replace_file(file, after)


def _report(file: Path, plan: AgentPlan, *, tested: bool, json: bool) -> None:
    if json:
        was_asked = tested and plan.agent != GUIDE
        said = {"file": str(file), "agent": plan.fields(), "timezone": plan.timezone or None}
        print_json({"ok": True, **said, "tested": was_asked})
        return
    who = plan.model or {LOCAL: "the local model"}.get(plan.agent, plan.agent)
    print_line(
        f"{file}: {who} answers from now on{'' if plan.agent == GUIDE or not tested else '. The test succeeded'}."
    )
    if plan.key_variable:
        print_line(f"The key stays in {plan.key_variable}, which must be set where Palaver runs.")
    elif plan.key_file:
        print_line(f"The key is in {file.parent / plan.key_file}.")
    print_line(
        "Next: run palaver chat to talk to it, or palaver up to run the gateway. A running gateway reloads on SIGHUP."
    )
