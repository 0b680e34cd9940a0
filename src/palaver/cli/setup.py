"""`palaver setup`: a few questions, and the configuration is written: who answers, or an account on a platform."""

import os
import re
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.account_wizard import Joined, Unanswered, ask_for, ask_secretly, is_somebody_there, join
from palaver.cli.output import confirmed, print_json, print_line
from palaver.cli.probe import try_out
from palaver.cli.shared_options import OPERATOR, ask
from palaver.config.agents import LocalAgentConfig, ModelAgentConfig
from palaver.config.loader import load
from palaver.config.paths import configuration_files, exists
from palaver.config.secrets import read_secret
from palaver.config.writer import (
    field_names,
    has_section,
    replace_fields,
    replace_file,
    replace_section,
    section_lines,
    yaml_scalar,
)
from palaver.gateway.agents import build_agent
from palaver.model.access import AccessRole, Grant
from palaver.model.errors import BadArgument, InvalidInput
from palaver.model.local_time import parse_zone
from palaver.model.value import value
from palaver.store.people import grants

__all__ = ["EXAMPLES", "Plan", "app", "setup", "zone_here"]

EXAMPLES = {
    "setup": "palaver setup --agent model --model openai:gpt-5-mini --key-env OPENAI_API_KEY --yes",
    "account": "palaver setup telegram --set token_file=~/token --owner 7",
}

app = typer.Typer(rich_markup_mode=None)

_ECHO, _LOCAL, _MODEL = "echo", "local", "model"
_ANSWERS = f"{_ECHO}, {_LOCAL}, or provider:model and, for a server of your own, its address"
_MODEL_NAME = re.compile(r"(?P<provider>[a-z0-9][a-z0-9-]{0,40}):(?P<model>\S{1,200})")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_TINY = 64
"""Tokens, so that a model that thinks first gets to its word."""

PlatformName = Annotated[
    str, typer.Argument(metavar="[PLATFORM]", help="A platform, to have an account there.", show_default=False)
]
AccountOption = Annotated[str, typer.Option("--account", metavar="NAME", help="What you call the account.")]
SetOption = Annotated[
    list[str], typer.Option("--set", metavar="OPTION=VALUE", help="An option of the account.", show_default=False)
]
OwnerOption = Annotated[
    str, typer.Option("--owner", metavar="ID", help="Under which id the platform knows you.", show_default=False)
]
AgentOption = Annotated[str, typer.Option("--agent", help="Who answers: echo, local or model.", show_default=False)]
ModelOption = Annotated[
    str, typer.Option("--model", metavar="PROVIDER:MODEL", help="Which model answers.", show_default=False)
]
UrlOption = Annotated[
    str, typer.Option("--base-url", metavar="URL", help="A server that speaks as OpenAI does.", show_default=False)
]
VariableOption = Annotated[
    str, typer.Option("--key-env", metavar="NAME", help="The environment variable with the key.", show_default=False)
]
FileOption = Annotated[str, typer.Option("--key-file", metavar="FILE", help="A file with the key.", show_default=False)]
ZoneOption = Annotated[str, typer.Option("--timezone", metavar="ZONE", help="Europe/Berlin.", show_default=False)]
Untested = Annotated[bool, typer.Option("--no-test", help="Do not ask the agent whether it answers.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Replace what the file says already, without asking.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@value
class Plan:
    """What is to be written."""

    agent: str
    model: str = ""
    base_url: str = ""
    key_variable: str = ""
    key_file: str = ""
    key: str = field(default="", repr=False)
    """As it was typed, or stands where it was said to stand; it is written into no configuration."""
    timezone: str = ""

    @property
    def provider(self) -> str:
        return self.model.partition(":")[0]

    def fields(self) -> dict[str, str]:
        """Of the section of the agent."""
        said = {"name": self.agent, "model": self.model, "base_url": self.base_url, "key_file": self.key_file}
        if self.key_variable:
            said["key"] = f"${{{self.key_variable}}}"
        return {name: value for name, value in said.items() if value}


@app.command(
    help="Choose who answers, or have an account on a platform; the configuration is written."
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
        _agree(file, f"has {platform}:{account}", there=has_section(before, way), yes=yes)
        joined = join(platform, account, given, tests=not no_test)
        owner = _owner(joined, owner)
        _write_account(file, before, joined, owner)
        _tell_account(file, joined, owner, json=json)
        return
    _agree(file, "says who answers", there="agent" in field_names(before), yes=yes)
    if agent == _MODEL and not model:
        raise BadArgument(
            "With --agent model one thing is missing:",
            found="--model",
            allowed="--model provider:model",
            example=EXAMPLES["setup"],
        )
    if agent or model:
        name = " ".join(filter(None, (model, base_url))) if agent in {"", _MODEL} else agent
        plan = _with_key(_chosen(name), key_env, key_file)
        plan = replace(plan, timezone=parse_zone(timezone).key if timezone else "")
    elif is_somebody_there():
        plan = _asked_for()
    else:
        raise BadArgument(
            "Nobody is at the terminal to be asked who answers:",
            found="no --agent",
            allowed="--agent echo, --agent local, or --agent model with --model and --key-env or --key-file",
            example=EXAMPLES["setup"],
        )
    _try(plan, asks=not no_test)
    _write(file, before, plan)
    _tell(file, plan, tested=not no_test, json=json)


def _content(file: Path) -> str:
    """What the file says now. Raises MalformedConfig where that is wrong: mended by whoever wrote it, not by us."""
    if not exists(file):
        return ""
    load(Path.cwd(), os.environ)
    return file.read_bytes().decode("utf-8-sig")


# What is asked


def _asked_for() -> Plan:
    plan = ask_for(f"Who answers? {_ANSWERS}:", _LOCAL, _chosen)
    if plan.agent == _MODEL:
        usual = next((name for name in _usual_variables(plan.provider) if os.environ.get(name)), "")
        plan = ask_secretly(
            f"The key for {plan.provider}, not shown while you type, or the variable that holds it:",
            usual,
            lambda said: _keyed(plan, said),
        )
    return replace(plan, timezone=ask_for("Your time zone?", zone_here(), lambda said: parse_zone(said).key))


def _chosen(said: str) -> Plan:
    name, _, address = said.strip().partition(" ")
    if name in {_ECHO, _LOCAL} and not address:
        return Plan(agent=name)
    if _MODEL_NAME.fullmatch(name) and (not address or address.startswith(("http://", "https://"))):
        return Plan(agent=_MODEL, model=name, base_url=address.strip())
    raise BadArgument("Nobody who could answer is called", found=said, allowed=_ANSWERS, example="openai:gpt-5-mini")


def _keyed(plan: Plan, said: str) -> Plan:
    """A key, the name of a variable that holds one, or nothing for a server that wants none. It is never quoted."""
    if os.environ.get(said):
        return _with_key(plan, said, "")
    if said in os.environ or _VARIABLE.fullmatch(said) or not (said.isascii() and said.isprintable()):
        raise BadArgument(
            "What was typed cannot be",
            found="a variable that is not set, nor a key with such characters",
            allowed="a key, or a variable that is set; any other key in a file: --key-file",
            example="OPENAI_API_KEY",
        )
    if not said and not plan.base_url:
        raise BadArgument("A key cannot be", found="", allowed="a key, or a variable", example="OPENAI_API_KEY")
    return replace(plan, key=said, key_file=f"keys/{plan.provider}" if said else "")


def _with_key(plan: Plan, variable: str, file: str) -> Plan:
    if variable and not os.environ.get(variable):
        raise BadArgument(
            "There is no environment variable",
            found=variable,
            allowed="one that is set",
            example="--key-env OPENAI_API_KEY",
        )
    if variable:
        return replace(plan, key_variable=variable, key=os.environ[variable])
    if file:
        place = Path(file).expanduser().absolute()
        return replace(plan, key_file=str(place), key=read_secret(place))
    return plan


def _usual_variables(provider: str) -> tuple[str, ...]:
    names = {"google": ("GOOGLE_API_KEY", "GEMINI_API_KEY")}
    return names.get(provider, (f"{provider.upper().replace('-', '_')}_API_KEY",))


def zone_here(link: Path = Path("/etc/localtime")) -> str:
    """The zone of this machine; UTC where it does not say."""
    named = os.environ.get("TZ") or str(link.resolve()).rpartition("zoneinfo/")[2]
    try:
        return parse_zone(named).key
    except InvalidInput:
        return "UTC"


# What is done


def _agree(file: Path, what: str, *, there: bool, yes: bool) -> None:
    """What somebody has written is not replaced behind their back."""
    if yes or not there:
        return
    if not is_somebody_there():
        raise BadArgument(f"{file} already {what};", found="no --yes", allowed="--yes, to replace it", example="--yes")
    if not confirmed(f"{file} already {what}. Replace that?"):
        raise Unanswered


def _write_account(file: Path, before: str, joined: Joined, owner: str) -> None:
    """The owner is let in at once."""
    after = replace_section(before, joined.way, joined.fields)
    _check(file, after)
    for name, secret in joined.files.items():
        replace_file(file.parent / name, f"{secret}\n", private=True)
    replace_file(file, after)
    if owner:
        grant = Grant(role=AccessRole.OWNER, platform=joined.platform, user_id=owner)
        ask(None, lambda opened: opened.transact(grants.add(grant, shared_options.now(), by=OPERATOR.name)), make=True)


def _owner(joined: Joined, said: str) -> str:
    """Who the owner is there, if that is known now."""
    guide = joined.guide

    def read(owner: str) -> str:
        if owner and guide.owner_pattern and not re.fullmatch(guide.owner_pattern, owner):
            allowed = f"{guide.owner_prompt.rstrip('?')}; nothing, to be let in by a code later"
            raise BadArgument("The owner cannot be", found=owner, allowed=allowed, example=guide.owner_example)
        return owner

    if said or not guide.owner_prompt or not is_somebody_there():
        return read(said)
    return ask_for(f"{guide.owner_prompt} Nothing, to be let in by a code later:", "", read)


def _tell_account(file: Path, joined: Joined, owner: str, *, json: bool) -> None:
    name = f"{joined.platform}:{joined.account}"
    files = [str(file.parent / each) for each in joined.files]
    if json:
        said = {"file": str(file), "account": name, "options": joined.fields, "secrets": files}
        print_json({"ok": True, **said, "known_as": joined.known_as or None, "owner": owner or None})
        return
    print_line(f"{file} has {name} from now on{f': {joined.known_as}' if joined.known_as else ''}.")
    for each in files:
        print_line(f"What is secret about it is in {each}, which only you may read.")
    if joined.guide.after:
        print_line(joined.guide.after.replace("{account}", joined.account))
    if joined.guide.owner_prompt:
        later = "write to it, and it gives you a code for: palaver pair approve CODE --role owner"
        print_line(f"{joined.platform}:{owner} is its owner." if owner else f"To be its owner, {later}")
    print_line("Next: palaver up, or if a gateway runs, start it again.")


def _try(plan: Plan, *, asks: bool) -> None:
    """Raises InvalidInput for an agent that nobody can ask, and NotReached, if it `asks`, for one that is silent."""
    match plan.agent:
        case "model":
            agent, name = build_agent(_model_choice(plan)), plan.model
        case "local":
            agent, name = build_agent(LocalAgentConfig(max_tokens=4)), "The local model"
        case _:
            return
    if asks:
        try_out(agent, name, plan.key)


def _model_choice(plan: Plan) -> ModelAgentConfig:
    return ModelAgentConfig.model_validate(
        {"model": plan.model, "base_url": plan.base_url or None, "key": plan.key or None, "max_tokens": _TINY}
    )


def _write(file: Path, before: str, plan: Plan) -> None:
    said: dict[str, list[str]] = {"agent": section_lines("agent", plan.fields())}
    if plan.timezone:
        said["timezone"] = [f"timezone: {yaml_scalar(plan.timezone)}"]
    after = replace_fields(before, said)
    _check(file, after)
    if plan.key and plan.key_file and not Path(plan.key_file).is_absolute():
        replace_file(file.parent / plan.key_file, f"{plan.key}\n", private=True)
    replace_file(file, after)


def _check(file: Path, content: str) -> None:
    """Raises MalformedConfig where it would be wrong; then nothing is replaced."""
    draft = file.with_name(f".{file.name}.draft")
    replace_file(draft, content, private=True)
    try:
        load(Path.cwd(), {**os.environ, "PALAVER_CONFIG": str(draft.absolute())})
    finally:
        draft.unlink()


def _tell(file: Path, plan: Plan, *, tested: bool, json: bool) -> None:
    if json:
        was_asked = tested and plan.agent != _ECHO
        said = {"file": str(file), "agent": plan.fields(), "timezone": plan.timezone or None}
        print_json({"ok": True, **said, "tested": was_asked})
        return
    who = plan.model or {_LOCAL: "the local model"}.get(plan.agent, plan.agent)
    print_line(
        f"{file}: {who} answers from now on{'' if plan.agent == _ECHO or not tested else '; it was asked, and does'}."
    )
    if plan.key_variable:
        print_line(f"The key stays in {plan.key_variable}, which has to be set wherever Palaver runs.")
    elif plan.key_file:
        print_line(f"The key is in {file.parent / plan.key_file}.")
    print_line("Next: palaver chat, to talk to it; palaver up, to run the gateway, or SIGHUP to one that runs.")
