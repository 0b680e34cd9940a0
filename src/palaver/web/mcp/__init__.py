"""The MCP server: what a principal may see and do, as tools and resources for other agents."""
