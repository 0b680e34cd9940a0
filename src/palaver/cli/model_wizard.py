"""Ask which agent answers: a provider from a list, its key, and a model that it offers."""

import os
from dataclasses import replace
from pathlib import Path

from palaver.agents.hub import ModelHub, find_model, label_suggestions, memory_of_machine, suggested
from palaver.agents.local import find_file, require_library
from palaver.agents.model_list import ModelsNotListed
from palaver.cli.account_wizard import install_missing
from palaver.cli.loop import run
from palaver.cli.output import progress_line
from palaver.cli.prompts import Cancelled, Choice, agrees, ask_for, choose, is_interactive, say
from palaver.config.agent_plan import GUIDE, LOCAL, MODEL, AgentPlan, list_choices, parse_agent, take_key
from palaver.config.offers import find_servers
from palaver.model.attachment import format_size
from palaver.model.errors import BadArgument, InvalidInput
from palaver.model.local_time import parse_zone
from palaver.model.providers import COMPATIBLE, PROVIDERS, parse_model
from palaver.protocols.agent import FailureKind
from palaver.protocols.installation import MissingPackages

_SERVER = "server"
_MOST_SHOWN = 20
_AGENTS = (
    *(Choice(each.name, each.title) for each in PROVIDERS.values()),
    Choice(_SERVER, "A server of yours, with OpenAI's API"),
    Choice(LOCAL, "A model that runs on this machine"),
    Choice(GUIDE, "The guide, which needs no model"),
)


def ask_agent_plan(hub: ModelHub, *, installs: bool) -> AgentPlan:
    """Ask for an agent; write nothing."""
    chosen = choose(
        "Which model answers?",
        _AGENTS,
        next(iter(PROVIDERS)),
        help="Choose who runs the model. You need a key of that provider; a server on this machine needs none.",
        other="a model such as gpt-5-mini, with the address of your server if it is not the provider's",
        accepts=_is_model,
    )
    if chosen == GUIDE:
        plan = AgentPlan(agent=chosen)
    elif chosen == LOCAL:
        plan = _ask_local(hub, installs=installs)
    elif chosen == _SERVER:
        plan = _ask_server(installs=installs)
    elif chosen in PROVIDERS:
        plan = _ask_provider(AgentPlan(agent=MODEL, model=f"{chosen}:"), installs=installs)
    else:
        plan = _ask_key(parse_agent(chosen))
    zone = ask_for(
        "Your time zone?",
        zone_here(),
        lambda said: parse_zone(said).key,
        help="Dates and schedules use it. Name it by continent and city, for example Europe/Berlin.",
    )
    return replace(plan, timezone=zone)


def _is_model(said: str) -> bool:
    try:
        return parse_agent(said).agent == MODEL
    except InvalidInput:
        return False


def _ask_server(*, installs: bool) -> AgentPlan:
    found = [Choice(each.base_url, f"{each.name}, {each.base_url}") for each in run(find_servers(os.environ))]
    question = "Where is the server?" if found else "No server answers on this machine. What is the address of yours?"
    url = choose(
        question,
        found,
        found[0].name if found else "",
        help="These answer on this machine now." if found else "Start it first, for example with ollama serve.",
        other="an address such as http://127.0.0.1:11434/v1",
        accepts=lambda said: said.startswith(("http://", "https://")),
    )
    plan = AgentPlan(agent=MODEL, model=f"{COMPATIBLE}:", base_url=url)
    return _ask_provider(plan, installs=installs, keyed=url not in {each.name for each in found})


def _ask_local(hub: ModelHub, *, installs: bool) -> AgentPlan:
    memory = memory_of_machine()
    said = choose(
        "Which model?",
        [Choice(*each) for each in label_suggestions(memory)],
        suggested(memory).name,
        help=f"This machine has {format_size(memory)} of memory. A larger model answers better and slower.",
        other="a GGUF file on this machine, or OWNER/REPOSITORY of the hub",
        accepts=lambda said: "/" in said or said.endswith(".gguf"),
    )
    return local_plan(said, hub, installs=installs)


def local_plan(said: str, hub: ModelHub, *, installs: bool, agreed: bool = False) -> AgentPlan:
    """Return the plan for a model file of this machine, or for one of the hub, which is downloaded.

    What runs models comes first: nobody waits for a download that cannot be used.
    """
    if file := find_file(said):
        return AgentPlan(agent=LOCAL, file=str(file))
    model = find_model(said, hub.url)
    facts = hub.describe(model)
    if not agreed and not is_interactive():
        raise BadArgument(
            f"{facts} There is no terminal to ask:", found="", allowed="--yes to download it", example="--yes"
        )
    say(facts)
    if not agreed and not agrees("Download it?", usual=True):
        raise Cancelled
    try:
        require_library()
    except MissingPackages as missing:
        install_missing(missing, installs=installs)
        require_library()
    with progress_line() as show:
        return AgentPlan(agent=LOCAL, file=str(hub.get(model, show)))


def _ask_provider(plan: AgentPlan, *, installs: bool, keyed: bool = True) -> AgentPlan:
    """Ask for the key until the provider accepts it, then for one of its models."""
    listed: list[str] = []
    while True:
        plan = _ask_key(plan) if keyed and not plan.key else plan
        try:
            listed = _list(plan, installs=installs)
            break
        except ModelsNotListed as problem:
            say(f"{plan.title}: {problem}.")
            if problem.kind is not FailureKind.UNAUTHORIZED:
                break
            plan, keyed = replace(plan, key="", key_file="", key_variable=""), True
    return replace(plan, model=_ask_model(plan, listed))


def _list(plan: AgentPlan, *, installs: bool) -> list[str]:
    try:
        return run(list_choices(plan))
    except MissingPackages as missing:
        install_missing(missing, installs=installs)
    return run(list_choices(plan))


def _ask_key(plan: AgentPlan) -> AgentPlan:
    known = PROVIDERS.get(plan.provider)
    names = known.key_variables if known and not plan.base_url else ()
    usual = next((name for name in names if os.environ.get(name)), "")
    where = f"Create a key at {known.key_page}." if known and not plan.base_url else "Leave it empty if it needs none."
    return ask_for(
        f"Your key for {plan.title} (hidden while you type), or the variable that holds it:",
        usual,
        lambda said: take_key(plan, said),
        help=f"{where} It goes into a file that only you can read.",
        secret=True,
    )


def _ask_model(plan: AgentPlan, listed: list[str]) -> str:
    """Ask for a model of the plan's provider, and return it as `provider:model`."""
    if not listed:
        usual, help_text = plan.usual_model, "As the provider writes it."
        return ask_for("Name of the model:", usual, lambda said: _spell(plan, said), help=help_text)
    shown = listed[:_MOST_SHOWN]
    more = f" ({len(listed) - len(shown)} more can be named)" if len(listed) > len(shown) else ""
    said = choose(
        f"Which model?{more}",
        [Choice(name, name) for name in shown],
        listed[0],
        help=f"{plan.title} offers these to your key.",
        other="another name",
        accepts=lambda said: bool(said) and not said.isdecimal(),
    )
    return _spell(plan, said)


def _spell(plan: AgentPlan, said: str) -> str:
    if not said or " " in said:
        raise BadArgument("This is not the name of a model:", found=said, allowed="one word", example="gpt-5-mini")
    named = parse_model(said)
    return named if named.startswith(f"{plan.provider}:") else f"{plan.provider}:{said}"


def zone_here(link: Path = Path("/etc/localtime")) -> str:
    """Return the time zone of this machine, or UTC."""
    named = os.environ.get("TZ") or str(link.resolve()).rpartition("zoneinfo/")[2]
    try:
        return parse_zone(named).key
    except InvalidInput:
        return "UTC"
