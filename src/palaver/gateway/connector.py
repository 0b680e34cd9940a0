"""Connect a model while the guide answers: with a pasted key, or with what this machine has already."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from palaver.agents.model_list import ModelsNotListed, list_models
from palaver.commands.registry import reply
from palaver.config.agent_plan import AgentPlan
from palaver.config.agent_trial import agent_edits, trial_agent
from palaver.config.model import Config
from palaver.config.offers import Offer, address_of, find_keys, find_servers, plan_key, plan_offer
from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine.commands import CommandContext
from palaver.engine.intake.pasted_keys import PastedKeys, is_received
from palaver.model.providers import KEYED_PROVIDERS, PROVIDERS, pick_model
from palaver.model.redact import Pasted, PastedKey
from palaver.model.source import MAIN
from palaver.model.text import listed
from palaver.protocols.agent import FailureKind
from palaver.settings.agents import GuideAgentConfig
from palaver.store.meta import SET_META, read_meta
from palaver.store.store import Store
from palaver.web.settings import Settings

log = logging.getLogger(__name__)

_NO = "no"
_DECLINED = "declined_offers"
_UNCHANGED = "Nothing was saved and nothing has changed."
_ASK = {
    Pasted.SEVERAL: "Your message has several keys, so none was used or stored. Send the one to use, alone.",
    Pasted.PART: "This looks like a part of a key of {title}, so it was not used or stored. Send the whole key.",
    Pasted.INSIDE: "Your message has a key of {title} inside a longer text, so it was not used or stored. To use"
    " it, send it alone.",
}
_LOST = "The key is gone: Palaver keeps none before it has worked. Send it again."


class NotConnected(Exception):
    """Why nothing was connected, as a sentence for the owner."""


class Connector:
    """Looks once for what this machine has, and offers it; it uses nothing that the owner has not named."""

    def __init__(self, store: Store, settings: Settings | None, config: Callable[[], Config]) -> None:
        self.keys = PastedKeys(self.is_wanted)
        self._store = store
        self._settings = settings
        self._config = config
        self._looking: asyncio.Task[list[Offer]] | None = None

    def is_wanted(self, profile: str = MAIN) -> bool:
        """Return whether nothing but the guide answers this profile."""
        config = self._config()
        own = config.profiles.get(profile)
        has_own = own is not None and "agent" in own.model_fields_set
        return self._settings is not None and isinstance(config.agent, GuideAgentConfig) and not has_own

    # Offer

    def look(self) -> None:
        """Begin to look, beside everything else."""
        if self.is_wanted() and self._config().offers and self._looking is None:
            self._looking = asyncio.create_task(self._look())

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> list[Offer]:
        return [*find_keys(self._environ), *await find_servers(self._environ)]

    async def find(self) -> Sequence[Offer]:
        """Return what was found and not declined, while the guide answers."""
        if not self.is_wanted():
            return ()
        found = await self._found()
        declined = await self._store.read(_declined())
        return [each for each in found if each.name not in declined]

    async def _found(self) -> Sequence[Offer]:
        # Shielded: a request that is cancelled must not end the search for all others.
        return await asyncio.shield(self._looking) if self._looking else ()

    @property
    def _environ(self) -> Mapping[str, str]:
        return self._settings.file.environ if self._settings else {}

    # Connect

    async def connect(self, name: str, context: CommandContext) -> Transaction[str]:
        """Run `/connect`: a name that was found, a pasted key, `no`, or nothing to see what there is."""
        pasted = self.keys.take_out(context.received.inbound.source)
        if not self.is_wanted(context.received.key.profile) or self._settings is None:
            unused = " This key was neither tried nor stored." if pasted else ""
            return reply(f"{self._who()} answers already.{unused} {_CHANGE}")
        found = await self._found()
        if name.lower() == _NO:
            return self._decline(found)
        try:
            if pasted or is_received(name):
                return reply(await self._use_pasted(self._settings, pasted))
            offer = next((each for each in found if each.name.lower() == name.lower()), None)
            if offer:
                return reply(await self._use_offer(self._settings, offer))
        except NotConnected as reason:
            return reply(str(reason))
        return reply(_explain(found, name))

    def _who(self) -> str:
        agent = self._config().agent
        return str(getattr(agent, "model", "")) or f"The agent {agent.name}"

    async def _use_pasted(self, settings: Settings, pasted: PastedKey | None) -> str:
        if pasted is None:
            return _LOST
        provider = PROVIDERS[pasted.provider]
        if pasted.kind is not Pasted.KEY:
            return _ASK[pasted.kind].format(title=provider.title)
        address = address_of(provider.name, self._environ)
        model = await self._pick(provider.name, pasted.key, address)
        plan = plan_key(provider.name, pasted.key, model, self._environ)
        await self._write(settings, plan)
        file = settings.file.path.parent / plan.key_file
        return f"{plan.model} answers from now on. Your key is in {file}, which only you can read. {_CHANGE}"

    async def _use_offer(self, settings: Settings, offer: Offer) -> str:
        key = self._environ[offer.variable] if offer.variable else ""
        model = offer.model or await self._pick(offer.provider, key, offer.base_url)
        plan = plan_offer(offer, model, self._environ)
        await self._write(settings, plan)
        where = f" The key stays in {offer.variable}, which must be set where Palaver runs." if offer.variable else ""
        return f"{plan.model} answers from now on.{where} {_CHANGE}"

    async def _pick(self, provider: str, key: str, address: str) -> str:
        """Return the model to begin with. Raises NotConnected if the key is refused."""
        wanted = PROVIDERS[provider].default_model
        try:
            models = await list_models(provider, key=key, base_url=address)
        except ModelsNotListed as error:
            if error.kind is FailureKind.FATAL:
                return wanted  # the test says whether it answers
            raise NotConnected(_refusal(provider, error)) from error
        return pick_model([each.name for each in models], wanted) or wanted

    async def _write(self, settings: Settings, plan: AgentPlan) -> None:
        """Ask the model one question, then write and use it. Raises NotConnected, and keeps nothing, if it fails."""
        problem = await settings.ask_agent(trial_agent(plan), plan.key)
        if problem:
            raise NotConnected(f"{plan.model} does not answer: {problem.rstrip('.')}. {_UNCHANGED}")
        secrets = {plan.key_file: plan.key} if plan.key_file else {}
        await settings.change(agent_edits(await settings.load(), plan), secrets)
        log.info("a model was connected", extra={"action": "agent.connected"})

    @transaction
    def _decline(self, found: Sequence[Offer]) -> Statements[str]:
        names = {each.name for each in found}
        yield SET_META, (_DECLINED, "\n".join(sorted(names | (yield from _declined()))))
        later = listed([f"/connect {each.name}" for each in found])
        return f"It will not be offered again. To use it later: {later}." if found else "Nothing is offered."


_CHANGE = "To choose another model, open Settings in the web window or run palaver setup."


def _refusal(provider: str, error: ModelsNotListed) -> str:
    known = PROVIDERS[provider]
    if error.kind is FailureKind.UNAUTHORIZED:
        return f"{known.title} refuses this key. {_UNCHANGED} You can see your keys at {known.key_page}."
    return (
        f"{known.title} cannot be reached, so the key was not tried. {_UNCHANGED} Check the network, and send it again."
    )


def _explain(found: Sequence[Offer], name: str) -> str:
    known = PROVIDERS.get(name.lower())
    if known:
        form = "" if known.key_form else f", as {known.key_variables[0]}=…"
        return f"Create a key at {known.key_page} and send it here{form}."
    unknown = f"Found nothing called {name[:60]}. " if name else ""
    here = "".join(f"{each.text}: /connect {each.name}\n" for each in found)
    titles = listed([each.title for each in KEYED_PROVIDERS[::-1]])
    return f"{unknown}{'Found here:' + chr(10) + here if here else ''}To connect a model, send its key: of {titles}."


@transaction
def _declined() -> Statements[frozenset[str]]:
    said = yield from read_meta(_DECLINED)
    return frozenset((said or "").split("\n")) - {""}
