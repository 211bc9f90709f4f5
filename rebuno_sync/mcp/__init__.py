"""MCP tools for blocking code.

``wrap_mcp_tool`` makes an effect of a tool that you have a way to call; ``MCPClient`` calls those
of a server (extra ``mcp``).
"""

from .client import MCPClient
from .connection import ConnectionLost
from .wrapping import flat_result, wrap_mcp_tool, wrap_mcp_tools

__all__ = ["ConnectionLost", "MCPClient", "flat_result", "wrap_mcp_tool", "wrap_mcp_tools"]
