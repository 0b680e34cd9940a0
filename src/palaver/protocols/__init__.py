"""What third parties implement: adapters, agents, tools and hooks."""
