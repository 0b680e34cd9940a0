"""The agent of a plan as it is tested before anything is written: with short answers."""

from palaver.config.agent_plan import LOCAL, MODEL, AgentPlan
from palaver.config.agents import AgentConfig, GuideAgentConfig, LocalAgentConfig, ModelAgentConfig

_MAX_TOKENS = 64
"""Enough for a model that reasons before it answers."""


def trial_agent(plan: AgentPlan) -> AgentConfig:
    """Return the agent to ask one question."""
    if plan.agent == MODEL:
        options = {"model": plan.model, "base_url": plan.base_url or None, "key": plan.key or None}
        return ModelAgentConfig.model_validate({**options, "max_tokens": _MAX_TOKENS})
    return LocalAgentConfig(max_tokens=4) if plan.agent == LOCAL else GuideAgentConfig()
