"""How programs use the public names, for type checkers alone: nothing here is ever executed."""

from __future__ import annotations

import datetime
import functools
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_type

import httpx2
import pydantic
import requests
from requests.adapters import HTTPAdapter

import rebuno_sync as rebuno
from rebuno_sync import errors, llm, types
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel_client import KernelClient
from rebuno_sync.logs import ExecutionFilter
from rebuno_sync.mcp import MCPClient, wrap_mcp_tool, wrap_mcp_tools
from rebuno_sync.types import StepDecision


class Page(pydantic.BaseModel):
    url: str


@dataclass
class Receipt:
    order: str
    cents: int


@rebuno.tool
def search(query: str, limit: int = 10) -> list[str]:
    return [query] * limit


@rebuno.tool("fetch_page")
def fetch(url: str) -> Page:
    return Page(url=url)


@rebuno.tool("charge_card", idempotency="at_most_once")
def charge(order: str, *, cents: int) -> Receipt:
    return Receipt(order, cents)


class Shop:
    @rebuno.tool
    def price(self, item: str) -> int:
        return len(item)


def count(words: list[str]) -> int:
    return len(words)


def handler(prompt: str) -> dict[str, int]:
    assert_type(search(prompt), list[str])
    assert_type(search(query=prompt, limit=3), list[str])
    assert_type(fetch(prompt), Page)
    assert_type(charge(prompt, cents=1), Receipt)
    assert_type(Shop().price(prompt), int)
    assert_type(rebuno.step("count", count, {"words": ["a"]}), int)
    assert_type(rebuno.step("lambda", lambda: "text"), str)
    assert_type(rebuno.now(), datetime.datetime)
    assert_type(rebuno.uuid4(name="ticket"), uuid.UUID)
    assert_type(rebuno.random(), float)
    rebuno.sleep(1.5, name="pause")
    assert_type(rebuno.patched("a change"), bool)
    both = rebuno.parallel(
        [(search, prompt, 3), functools.partial(search, prompt, limit=3), lambda: 1], max_workers=2
    )
    assert_type(both, list[Any])

    context = rebuno.execution()
    assert_type(context.id, str)
    assert_type(context.dispatch_attempt, int)
    assert_type(context.replaying, bool)
    assert_type(context.cancelled, bool)
    assert_type(context.status, types.ExecutionStatus)
    context.check()
    context.wait(1.5)
    context.on_cancel(lambda: None)
    context.invoke_tool("sensor", {"name": "attic"}, lambda: 21.5, idempotency="at_most_once")

    with rebuno.ThreadPoolExecutor(max_workers=4) as pool:
        assert_type(list(pool.map(search, ["a"])), list[list[str]])
        assert_type(pool.submit(fetch, "url").result(), Page)
    assert_type(rebuno.carry(count)(["a"]), int)
    return {"length": len(prompt)}


def misused() -> None:
    search(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    search()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    charge("a", 1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def hosts(kernel: Kernel) -> None:
    assert_type(rebuno.run(handler, {"prompt": "hi"}, key="job-42"), dict[str, int])
    assert_type(rebuno.run(handler, {"prompt": "hi"}, kernel=kernel, timeout=5.0), dict[str, int])

    used = MCPClient(["python", "server.py"], timeout=None)
    agent = rebuno.Agent(
        "agent",
        secret="s",
        base_url="http://kernel",
        description="d",
        output_schema=Page,
        workers=4,
        grace=1.0,
        closes=[used],
    )
    assert_type(agent.bind(handler)("prompt"), dict[str, int])
    agent.run(handler, host="127.0.0.1", port=5000)
    assert_type(agent.join(1.0), bool)
    agent.close()
    rebuno.Agent("embedded", kernel=kernel)


class Counters:
    driver_id = "counters"

    def create(self, checkpoint_ref: str | None) -> tuple[list[int], Any]:
        return [], {}

    def open(self, binding: Any) -> list[int]:
        return []


def environments() -> None:
    assert_type(rebuno.resource("a", Counters()), list[int])
    rebuno.resource("a", Counters(), rebuno.CheckpointPolicy(every_steps=2, on_completion=False))

    @rebuno.tool("count", resources=["a"])
    def add(n: int) -> int:
        return n

    assert_type(add(1), int)


def relatives() -> rebuno.Result:
    rebuno.subagent("agent", {"n": 1})
    return rebuno.Result(1, state=rebuno.previous())


def forks(kernel: Kernel) -> None:
    assert_type(kernel.fork("id", 3, policy_bundle=""), types.Execution)
    assert_type(kernel.fork_points("id"), types.ForkPoints)
    rebuno.run(count, {"words": []}, key="k", retry_failed=True)


def operators() -> None:
    with rebuno.Client("http://kernel", api_key="k", timeout=5.0) as client:
        execution = client.create("agent", {"prompt": "hi"}, idempotency_key="order-7")
        assert_type(execution, types.Execution)
        assert_type(client.wait(execution.id, timeout=60), types.Execution)
        assert_type(client.list_steps(execution.id), list[types.Step])
        assert_type(client.events(execution.id), list[types.Event])
        for found in client.iterate(status="failed"):
            assert_type(found, types.Execution)
    with Kernel("kernel.db", lease_timeout=5.0) as kernel:
        assert_type(kernel.get(execution.id), types.Execution)
        assert_type(kernel.find("agent", "key"), types.Execution | None)
    KernelClient("http://kernel", "agent", "secret", signature="v1").close()


def tools_of_others(raw: Any) -> None:
    assert_type(
        rebuno.wrap_tool("weather", lambda arguments: arguments["city"], description="d"),
        Callable[..., Any],
    )
    with MCPClient("http://server/mcp", headers={"a": "b"}) as client:
        assert_type(client.tools(prefix="p"), list[Callable[..., Any]])
        client.call_tool("add", {"a": 1}, repeat=True)
    assert_type(wrap_mcp_tool(raw, lambda name, arguments: None), Callable[..., Any])
    assert_type(wrap_mcp_tools([raw], lambda name, arguments: None), list[Callable[..., Any]])


def failures(error: Exception) -> None:
    assert_type(rebuno.failure_reason(error), str)
    rebuno.raise_for_refusal(error)
    try:
        raise error
    except rebuno.PolicyError as refusal:
        assert_type((refusal.rule_id, refusal.code, refusal.status_code), tuple[str, str, int])
    except rebuno.ToolError as failed:
        assert_type((failed.tool_id, failed.step_id), tuple[str, str])
    except (rebuno.ExecutionFailed, rebuno.ExecutionCancelled) as ended:
        assert_type((ended.execution_id, ended.reason), tuple[str, str])
    except (rebuno.RateLimited, rebuno.NetworkError, rebuno.StorageError) as other:
        assert_type(isinstance(other, errors.RebunoError), bool)


def words(outcome: rebuno.Outcome, decision: StepDecision) -> None:
    assert_type(outcome.execution_id, str)
    assert_type(outcome.reason, str)
    assert_type(decision.step_id, str)
    logging.getLogger().addFilter(ExecutionFilter(drop_replayed=True))


def ask_models(error: Exception) -> None:
    assert_type(rebuno.http_client(outside="passthrough"), requests.Session)
    assert_type(rebuno.httpx_client(ignore=llm.RANDOMISED | {"tag"}, timeout=5.0), httpx2.Client)
    session = requests.Session()
    session.mount("https://", llm.RecordingAdapter(HTTPAdapter()))
    httpx2.Client(transport=llm.httpx_transport(httpx2.HTTPTransport()))
    with llm.record_all(hosts=["api.example.org"]), llm.warn_unrecorded():
        rebuno.raise_for_refusal(error)
    context = rebuno.execution()
    decision = assert_type(context.begin_llm("m", {"model": "m"}), StepDecision)
    context.record_llm(decision.step_id, {"status": 200})
    context.fail_llm(decision.step_id, {"message": "busy"}, final=False)


def hand_on(client: rebuno.Client) -> rebuno.Result:
    assert_type(rebuno.subagent("critic", {"text": "..."}, session="s", client=client), Any)
    return rebuno.Result(output=1, state=assert_type(rebuno.previous(), Any))
