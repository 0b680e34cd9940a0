"""The tools that the gateway offers its agent."""
