"""LangGraph's ``ToolNode`` inside a handler."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.children import ChildScript
from support.effect_log import EffectLog
from support.provider_bodies import chat_tool_calls
from support.provider_server import Handler, Provider, Request, plain, usual

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "programs" / "graph.py"
CITIES = ["Bonn", "Rome", "Bonn", "Oslo"]


def answer(request: Request, handler: Handler) -> None:
    """First the model wants four tools, two of them with the same arguments; then it answers."""
    if request.json["messages"][-1]["role"] == "tool":
        usual(request, handler)
    else:
        wanted = chat_tool_calls("weather", [{"city": city} for city in CITIES])
        plain(wanted)(request, handler)


def test_c5_tools_of_a_graph_run_once_on_its_threads(
    tmp_path: Path, python: Path, provider: Provider
) -> None:
    """Killed after two results and resumed: the two do not run again, each result goes to its own
    call, and the model is asked twice in all."""
    provider.answer(answer)
    log = EffectLog(tmp_path / "log")
    child = ChildScript(
        PROGRAM,
        tmp_path,
        python=python,
        options=(),
        url=provider.url,
        db=tmp_path / "kernel.db",
        log=log.path,
    )
    with child.start(wanted=2) as first:
        two = first.says(lambda said: isinstance(said, list), "two results", 90)
        first.kill()
    assert len(provider.requests) == 1
    messages = child.run(wanted=4, seconds=90)["messages"]
    tokens = {line.token: line.label for line in log.lines()}
    said = [content for kind, content in messages if kind == "tool"]
    assert [tokens[token] for token in said] == CITIES
    assert sorted(tokens) == sorted(said)
    assert set(two) <= set(said)
    assert messages[-1] == ["ai", "Hello."]
    assert len(provider.requests) == 2
