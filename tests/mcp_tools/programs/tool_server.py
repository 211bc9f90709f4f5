"""An MCP server over its standard streams, or over HTTP when it is given a port."""

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("tools")
LOG = Path(os.environ["TOOL_LOG"])


def note(line: str) -> None:
    with LOG.open("a") as log:
        log.write(line + "\n")


@server.tool(description="The sum of two numbers")
def add(a: int, b: int | None = None) -> int:
    note(f"add {a} {b}")
    return a + (b or 1)


@server.tool(structured_output=False)
def shout(text: str) -> str:
    return text.upper()


@server.tool(structured_output=False)
def twice(text: str) -> list[str]:
    return [text, text]


@server.tool()
def order(number: int) -> dict[str, Any]:
    return {"number": number, "lines": [1, 2]}


@server.tool()
def fail(number: int) -> str:
    note(f"fail {number}")
    raise ToolError(f"no order {number}")


@server.tool()
async def hang(number: int) -> str:
    note(f"hang {number}")
    if number:
        await anyio.sleep(600)
    return "done"


@server.tool()
def pid() -> int:
    return os.getpid()


def before_2026(app: Any) -> Any:
    """Of a protocol generation that has sessions: it knows no ``server/discover``."""

    async def old(scope: Any, receive: Any, send: Any) -> None:
        first = await receive() if scope["type"] == "http" else None
        if first is None or b"server/discover" not in first.get("body", b""):
            messages = iter([first] if first else [])

            async def received() -> Any:
                return next(messages, None) or await receive()

            await app(scope, received, send)
            return
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 400, "headers": headers})
        await send({"type": "http.response.body", "body": b"Missing session ID"})

    return old


if sys.argv[1:]:
    port, generation = sys.argv[1:]
    application: Any = server.streamable_http_app()
    if generation == "old":
        application = before_2026(application)
    uvicorn.run(application, host="127.0.0.1", port=int(port))
else:
    server.run()
