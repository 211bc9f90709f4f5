"""Tools that an MCP server lists, as effects; and what a call's result comes down to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..effects import wrap_tool
from ..errors import ToolError
from ..types import Idempotency

__all__ = ["flat_result", "wrap_mcp_tool", "wrap_mcp_tools"]


def wrap_mcp_tool(
    tool: Any,
    call: Callable[[str, dict[str, Any]], Any],
    *,
    prefix: str = "",
    idempotency: str = Idempotency.SAFE_TO_RETRY,
    resources: Sequence[str] = (),
) -> Callable[..., Any]:
    """Make an effect of an MCP tool, for whatever client calls it (protocol.md 13.8).

    ``tool``: what the server lists, an object or a dict with ``name``, ``description`` and
    ``inputSchema`` (or ``input_schema``). ``call(name, arguments)``: calls it and blocks until its
    result is there; it gets the tool's bare name. ``prefix``: the effect is called
    ``<prefix>_<name>``, so that two servers may have tools of one name. ``resources``: as of
    ``tool``.

    The callable takes keyword arguments; those that are ``None`` are left out. It returns what
    `flat_result` makes of the result, and raises ``ToolError`` when the tool reports an error.
    """
    bare = str(_of(tool, "name"))
    return wrap_tool(
        f"{prefix}_{bare}" if prefix else bare,
        lambda arguments: call(bare, arguments),
        description=_of(tool, "description") or "",
        args_schema=_of(tool, "inputSchema", "input_schema") or {},
        idempotency=idempotency,
        resources=resources,
        to_result=flat_result,
        transform_args=_given,
    )


def wrap_mcp_tools(
    tools: Iterable[Any],
    call: Callable[[str, dict[str, Any]], Any],
    *,
    prefix: str = "",
    idempotency: str = Idempotency.SAFE_TO_RETRY,
    resources: Sequence[str] = (),
) -> list[Callable[..., Any]]:
    """`wrap_mcp_tool` for each of a server's tools."""
    return [
        wrap_mcp_tool(tool, call, prefix=prefix, idempotency=idempotency, resources=resources)
        for tool in tools
    ]


def flat_result(result: Any) -> Any:
    """What a call's result says: its structured content, else its texts joined by line feeds, else
    the result as it is.

    Raises ``ToolError`` with the texts when the tool reports an error.
    """
    blocks = _of(result, "content")
    told = "\n".join(map(_text_of, blocks)) if isinstance(blocks, (list, tuple)) else None
    if _of(result, "isError", "is_error"):
        raise ToolError(told or "the tool reports an error and says nothing of it")
    structured = _of(result, "structuredContent", "structured_content")
    if structured is not None:
        return structured
    if blocks == [] or blocks == ():
        return None
    return result if told is None else told


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _text_of(block: Any) -> str:
    text = _of(block, "text")
    return text if isinstance(text, str) else str(block)


def _of(thing: Any, *names: str) -> Any:
    """The first of the members that ``thing``, an object or a dict, has; else ``None``."""
    for name in names:
        found = thing.get(name) if isinstance(thing, dict) else getattr(thing, name, None)
        if found is not None:
            return found
    return None
