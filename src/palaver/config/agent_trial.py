"""The agent of a plan as it is tested before anything is written, with short answers, and then written."""

from pathlib import Path

from palaver.config.agent_plan import LOCAL, MODEL, AgentPlan
from palaver.config.editor import Edit
from palaver.config.loader import Loaded
from palaver.settings.agents import AgentConfig, GuideAgentConfig, LocalAgentConfig, ModelAgentConfig

_MAX_TOKENS = 64
"""Enough for a model that reasons before it answers."""


def trial_agent(plan: AgentPlan) -> AgentConfig:
    """Return the agent to ask one question."""
    if plan.agent == MODEL:
        options = {"model": plan.model, "base_url": plan.base_url or None, "key": plan.key or None}
        return ModelAgentConfig.model_validate({**options, "max_tokens": _MAX_TOKENS})
    if plan.agent == LOCAL:
        return LocalAgentConfig(max_tokens=4, file=Path(plan.file) if plan.file else None)
    return GuideAgentConfig()


def agent_edits(loaded: Loaded, plan: AgentPlan, *, keeps_key: bool = False) -> list[Edit]:
    """Set the fields of the new agent, and remove those that only the old one had. Comments and the rest stay."""
    wanted, before = plan.fields(), set(loaded.sources.names(("agent",)))
    known = set(type(trial_agent(plan)).model_fields)
    gone = {name for name in before if name not in known}
    gone |= {name for name in ("key", "key_file", "base_url") if name in before and name not in wanted}
    if keeps_key:
        gone -= {"key", "key_file"}
    sets = [Edit(("agent", name), text) for name, text in wanted.items()]
    return [*sets, *(Edit(("agent", name), None) for name in sorted(gone))]
