"""The MCP server: sessions, search and messages as tools for other agents."""
