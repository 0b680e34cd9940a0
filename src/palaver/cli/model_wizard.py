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
_SAME_KEY = "the same as before"
_AGENTS = (
    *(Choice(each.name, each.title) for each in PROVIDERS.values()),
    Choice(_SERVER, "A server of yours, with OpenAI's API"),
    Choice(LOCAL, "A model that runs on this machine"),
    Choice(GUIDE, "The guide, which needs no model"),
)


def ask_agent_plan(hub: ModelHub, before: AgentPlan, *, installs: bool) -> AgentPlan:
    """Ask for an agent; write nothing. What was answered `before` is the default, if it was."""
    chosen = choose(
        "Which model answers?",
        _AGENTS,
        _usual_choice(before),
        help="Choose who runs the model. You need a key of that provider; a server on this machine needs none. You can"
        " also name a model, and behind it the address of its server.",
        other="a model such as gpt-5-mini",
        accepts=_is_model,
    )
    if chosen == GUIDE:
        plan = AgentPlan(agent=chosen)
    elif chosen == LOCAL:
        plan = _ask_local(hub, before, installs=installs)
    elif chosen == _SERVER:
        plan = _ask_server(before, installs=installs)
    elif chosen in PROVIDERS:
        plan = _ask_provider(AgentPlan(agent=MODEL, model=f"{chosen}:"), before, installs=installs)
    else:
        plan = _ask_key(parse_agent(chosen), before)
    zone = ask_for(
        "Your time zone?",
        before.timezone or zone_here(),
        lambda said: parse_zone(said).key,
        help="Dates and schedules use it. Name it by continent and city, for example Europe/Berlin.",
    )
    return replace(plan, timezone=zone)


def _usual_choice(before: AgentPlan) -> str:
    if before.base_url:
        return _SERVER
    usual = before.provider or before.agent
    return usual if usual in {each.name for each in _AGENTS} else _AGENTS[0].name


def _is_model(said: str) -> bool:
    try:
        return parse_agent(said).agent == MODEL
    except InvalidInput:
        return False


def _ask_server(before: AgentPlan, *, installs: bool) -> AgentPlan:
    found = [Choice(each.base_url, f"{each.name}, {each.base_url}") for each in run(find_servers(os.environ))]
    question = "Where is the server?" if found else "No server answers on this machine. What is the address of yours?"
    url = choose(
        question,
        found,
        before.base_url or (found[0].name if found else ""),
        help="These answer on this machine now." if found else "Start it first, for example with ollama serve.",
        other="an address such as http://127.0.0.1:11434/v1",
        accepts=_is_address,
    )
    plan = AgentPlan(agent=MODEL, model=f"{COMPATIBLE}:", base_url=url)
    return _ask_provider(plan, before, installs=installs, keyed=url not in {each.name for each in found})


def _is_address(said: str) -> bool:
    return said.startswith(("http://", "https://"))


def _ask_local(hub: ModelHub, before: AgentPlan, *, installs: bool) -> AgentPlan:
    memory = memory_of_machine()
    said = choose(
        "Which model?",
        [Choice(*each) for each in label_suggestions(memory)],
        before.file or suggested(memory).name,
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


def _ask_provider(plan: AgentPlan, before: AgentPlan, *, installs: bool, keyed: bool = True) -> AgentPlan:
    """Ask for the key until the provider accepts it and for the address until it answers, then for a model."""
    listed: list[str] = []
    while True:
        plan, keyed = _ask_key(plan, before) if keyed else plan, False
        try:
            listed = _list(plan, installs=installs)
            break
        except ModelsNotListed as problem:
            say(f"{plan.title}: {problem}.")
            if problem.kind is FailureKind.UNAUTHORIZED:
                plan, keyed = replace(plan, key="", key_file="", key_variable=""), True
                before = replace(before, key="", key_variable="")
            elif problem.kind is FailureKind.UNREACHABLE and plan.base_url:
                tried, plan = plan, replace(plan, base_url=_ask_address(plan.base_url))
                if plan == tried:
                    break
            else:
                break
    return replace(plan, model=_ask_model(plan, listed, before))


def _ask_address(usual: str) -> str:
    return choose(
        "What is the address? Press Enter to keep it anyway.",
        (),
        usual,
        help="Start the server first, for example with ollama serve.",
        other="an address such as http://127.0.0.1:11434/v1",
        accepts=_is_address,
    )


def _list(plan: AgentPlan, *, installs: bool) -> list[str]:
    try:
        return run(list_choices(plan))
    except MissingPackages as missing:
        install_missing(missing, installs=installs)
    return run(list_choices(plan))


def _ask_key(plan: AgentPlan, before: AgentPlan) -> AgentPlan:
    """Ask for the key. That of the same provider `before` is the default."""
    known = PROVIDERS.get(plan.provider)
    names = known.key_variables if known and not plan.base_url else ()
    usual = next((name for name in names if os.environ.get(name)), "")
    if before.key and (before.provider, before.base_url) == (plan.provider, plan.base_url):
        usual = before.key_variable or _SAME_KEY
    where = f"Create a key at {known.key_page}." if known and not plan.base_url else "Leave it empty if it needs none."
    return ask_for(
        f"Your key for {plan.title} (hidden while you type), or the variable that holds it:",
        usual,
        lambda said: take_key(plan, before.key if said == usual == _SAME_KEY else said),
        help=f"{where} It goes into a file that only you can read.",
        secret=True,
    )


def _ask_model(plan: AgentPlan, listed: list[str], before: AgentPlan) -> str:
    """Ask for a model of the plan's provider, and return it as `provider:model`."""
    named = before.model.partition(":")[2] if before.provider == plan.provider else ""
    if not listed:
        usual, help_text = named or plan.usual_model, "As the provider writes it."
        return ask_for("Name of the model:", usual, lambda said: _spell(plan, said), help=help_text)
    shown = listed[:_MOST_SHOWN]
    more = f" ({len(listed) - len(shown)} more can be named)" if len(listed) > len(shown) else ""
    said = choose(
        f"Which model?{more}",
        [Choice(name, name) for name in shown],
        named or listed[0],
        help=f"{plan.title} offers these to your key.",
        accepts=lambda said: bool(said) and not said.isdecimal() and not _is_address(said),
    )
    return _spell(plan, said)


def _spell(plan: AgentPlan, said: str) -> str:
    if not said or " " in said or _is_address(said):
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
