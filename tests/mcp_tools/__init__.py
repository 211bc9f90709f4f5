"""MCP tools, against real servers of the `mcp` package."""
