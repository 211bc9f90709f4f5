"""MCP tools that a program calls by itself, as effects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.replays import live_and_replayed, only_step

from rebuno_sync import ToolError
from rebuno_sync.kernel import Kernel
from rebuno_sync.mcp import flat_result, wrap_mcp_tool, wrap_mcp_tools

SCHEMA = {"type": "object", "properties": {"q": {}, "limit": {}}, "required": ["q"]}


def text(*texts: str) -> list[SimpleNamespace]:
    return [SimpleNamespace(type="text", text=it) for it in texts]


@pytest.mark.parametrize("attribute", ["inputSchema", "input_schema"])
@pytest.mark.parametrize("make", [lambda it: SimpleNamespace(**it), lambda it: it])
def test_a_tool_of_any_client_becomes_an_effect(kernel: Kernel, attribute: str, make: Any) -> None:
    """Objects and dicts, the schema under either name; the call gets the bare name, without what
    is ``None``."""
    calls: list[tuple[str, dict[str, Any]]] = []

    def call(name: str, arguments: dict[str, Any]) -> object:
        calls.append((name, arguments))
        return {"content": [{"type": "text", "text": "found"}]}

    listed = [make({"name": "search", "description": "Searches", attribute: SCHEMA})]
    [search] = wrap_mcp_tools(listed, call, prefix="web")
    assert (search.__name__, search.__doc__) == ("web_search", "Searches")
    assert live_and_replayed(kernel, lambda: search(q="a", limit=None)) == ("found", "found")
    assert calls == [("search", {"q": "a"})]
    step = only_step(kernel)
    assert (step.target, step.args, step.idempotency) == ("web_search", {"q": "a"}, "safe_to_retry")


@pytest.mark.parametrize(
    ("result", "flat"),
    [
        ({"structuredContent": {"a": 1}, "content": text("x")}, {"a": 1}),
        (SimpleNamespace(structured_content=[], content=text("x")), []),
        (SimpleNamespace(content=text("x")), "x"),
        (SimpleNamespace(content=text("x", "y")), "x\ny"),
        (SimpleNamespace(content=[SimpleNamespace(type="image")]), "namespace(type='image')"),
        (SimpleNamespace(content=[]), None),
        ({"raw": 1}, {"raw": 1}),
        ("text", "text"),
        (None, None),
    ],
)
def test_a_result_comes_down_to_what_it_says(result: object, flat: object) -> None:
    """Structured content, else the texts, else the result as it is (protocol.md 13.8)."""
    assert flat_result(result) == flat


@pytest.mark.parametrize("member", ["isError", "is_error"])
def test_an_error_result_is_a_failed_step(kernel: Kernel, member: str) -> None:
    result = SimpleNamespace(**{member: True}, content=text("no such order"))
    tool = wrap_mcp_tool({"name": "order"}, lambda name, arguments: result)
    for error in live_and_replayed(kernel, lambda: tool(number=1)):
        assert isinstance(error, ToolError)
        assert str(error) == "order: no such order"
    assert only_step(kernel).status == "failed"
