"""Tools of a real MCP server, called by blocking code from many threads."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import mcp
import pytest
from support.attempts import background
from support.replays import live_and_replayed, only_step
from support.services import Service
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import ToolError
from rebuno_sync.kernel import Kernel
from rebuno_sync.mcp import ConnectionLost, MCPClient

from .servers import OldOverHTTP, OverHTTP, OverStdio

Server = OverStdio | OverHTTP


def tools_of(client: MCPClient, **options: Any) -> dict[str, Any]:
    return {tool.__name__: tool for tool in client.tools(**options)}


def test_a_servers_tools_are_effects_that_replay(server: Server, kernel: Kernel) -> None:
    """Recorded under their prefixed names, called by their bare ones, and called once."""
    add = tools_of(server.client(), prefix="math")["math_add"]
    assert live_and_replayed(kernel, lambda: add(a=1, b=2)) == ({"result": 3}, {"result": 3})
    step = only_step(kernel)
    assert (step.target, step.kind, step.args) == ("math_add", "tool_call", {"a": 1, "b": 2})
    assert server.noted() == ["add 1 2"]


def test_what_is_listed_and_what_comes_back(server: Server, kernel: Kernel) -> None:
    """A tool has the name, text and signature of its schema; arguments that are ``None`` are no
    part of the call; structured content comes before text, and several texts are joined."""
    tools = tools_of(server.client())
    add = tools["add"]
    assert add.__doc__ == "The sum of two numbers"
    parameters = inspect.signature(add).parameters
    assert parameters["a"].default is inspect.Parameter.empty
    assert parameters["b"].default is None
    assert add.__input_schema__["required"] == ["a"]
    live_and_replayed(kernel, lambda: add(a=1, b=None))
    assert only_step(kernel).args == {"a": 1}
    expected = {"number": 7, "lines": [1, 2]}
    assert live_and_replayed(kernel, lambda: tools["order"](number=7)) == (expected, expected)
    assert live_and_replayed(kernel, lambda: tools["shout"](text="a")) == ("A", "A")
    assert live_and_replayed(kernel, lambda: tools["twice"](text="a")) == ("a\na", "a\na")


def test_an_error_that_a_tool_reports_fails_its_step(http: OverHTTP, kernel: Kernel) -> None:
    """``isError`` is a ``ToolError`` with the tool's words, and is not asked for again."""
    fail = tools_of(http.client())["fail"]
    for error in live_and_replayed(kernel, lambda: fail(number=5)):
        assert isinstance(error, ToolError)
        assert "no order 5" in str(error)
        assert error.tool_id == "fail"
    assert http.noted() == ["fail 5"]
    assert only_step(kernel).status == "failed"


@pytest.mark.slow
def test_many_threads_share_one_session(server: Server, kernel: Kernel) -> None:
    """Eight threads of one execution and eight executions at once, each with its own answer."""
    client = server.client()
    add, pid = (tools_of(client)[name] for name in ("add", "pid"))

    def handler(start: int) -> list[int]:
        with rebuno.ThreadPoolExecutor(8) as pool:
            sums = list(pool.map(lambda n: add(a=start, b=n)["result"], range(1, 17)))
        return [*sums, pid()["result"]]

    outputs: dict[int, list[int]] = {}

    def run(start: int) -> None:
        outputs[start] = rebuno.run(handler, {"start": start}, key=str(start), kernel=kernel)

    threads = [threading.Thread(target=run, args=(100 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    pids = {output.pop() for output in outputs.values()}
    assert outputs == {100 * n: [100 * n + m for m in range(1, 17)] for n in range(8)}
    assert len(pids) == 1
    assert sum(it.name == "rebuno-mcp" for it in threading.enumerate()) == 1


def test_a_server_that_dies_between_calls_is_reached_again(server: Server, kernel: Kernel) -> None:
    client = server.client()
    tools = tools_of(client)

    def handler() -> list[int]:
        before = tools["pid"]()["result"]
        server.kill(client, before)
        server.start()
        return [before, tools["pid"]()["result"]]

    before, after = rebuno.run(handler, kernel=kernel)
    assert before != after


@pytest.mark.slow
def test_a_server_that_dies_in_a_call_is_asked_again(server: Server, kernel: Kernel) -> None:
    """A ``safe_to_retry`` call is sent once more; eight threads wait in it at once."""
    client = server.client(timeout=60)
    tools = tools_of(client)
    first = client.call_tool("pid").structured_content["result"]

    def handler() -> list[str]:
        with rebuno.ThreadPoolExecutor(8) as pool:
            return [it["result"] for it in pool.map(lambda n: tools["hang"](number=n), range(1, 9))]

    def killing() -> None:
        for number in range(1, 9):
            server.waits_in(f"hang {number}")
        server.kill(client, first)
        server.start()
        wait_until(lambda: server.noted().count("hang 8") == 2, "being asked again")
        second = client.call_tool("pid").structured_content["result"]
        assert second != first
        for number in range(1, 9):
            wait_until(lambda n=number: server.noted().count(f"hang {n}") == 2, "all asked again")
        server.kill(client, second)

    with background(killing), pytest.raises(rebuno.ExecutionFailed, match="connection broke"):
        rebuno.run(handler, kernel=kernel)
    assert all(server.noted().count(f"hang {n}") == 2 for n in range(1, 9))


def test_an_at_most_once_call_is_never_sent_twice(server: Server, kernel: Kernel) -> None:
    """Its step fails when the connection breaks before the answer."""
    client = server.client()
    hang = tools_of(client, idempotency="at_most_once")["hang"]
    first = client.call_tool("pid").structured_content["result"]

    def killing() -> None:
        server.waits_in("hang 1")
        server.kill(client, first)

    with background(killing):
        live, replayed = live_and_replayed(kernel, lambda: hang(number=1))
    for error in (live, replayed):
        assert isinstance(error, ToolError)
        assert "calling 'hang' at the MCP server" in str(error)
        assert isinstance(error.__cause__, ConnectionLost)
        assert error.__cause__.sent
    assert server.noted() == ["hang 1"]


@pytest.mark.slow
def test_c7_a_cancelled_execution_does_not_wait_for_its_tool(
    server: Server, tmp_path: Path
) -> None:
    """The handler has ended within a second, though the server never answers, and the session is
    good for others."""
    client = server.client()
    hang = tools_of(client)["hang"]

    def handler() -> str:
        return str(hang(number=1))

    with Service(tmp_path) as service:
        agent = service.agent(handler)
        execution = service.client.create("served").id
        server.waits_in("hang 1")
        started = time.monotonic()
        service.client.cancel(execution)
        assert agent.join(10)
        assert time.monotonic() - started < 1
        assert service.client.get(execution).status == "cancelled"
    assert client.call_tool("hang", {"number": 0}).structured_content == {"result": "done"}


def test_an_answer_that_takes_too_long_is_a_timeout(http: OverHTTP, kernel: Kernel) -> None:
    client = http.client(timeout=0.5)
    client.list_tools()
    hang = tools_of(client)["hang"]
    for error in live_and_replayed(kernel, lambda: hang(number=1)):
        assert isinstance(error.__cause__, TimeoutError)
        assert "no answer in 0.5 s" in str(error)
    assert http.noted() == ["hang 1"]


@pytest.mark.slow
def test_a_closed_client_says_so_and_ends_its_thread(server: Server) -> None:
    """Closing twice is as good as once; a call under way ends."""
    client = server.client()
    client.list_tools()
    with background(lambda: client.call_tool("hang", {"number": 1})) as calling:
        server.waits_in("hang 1")
        client.close()
        client.close()
        with pytest.raises(ConnectionError, match="closed"):
            calling.result()
    with pytest.raises(RuntimeError, match="the MCP client is closed"):
        client.call_tool("pid")
    assert not any(it.name == "rebuno-mcp" for it in threading.enumerate())


def test_a_client_is_closed_with_its_agent(http: OverHTTP, kernel: Kernel) -> None:
    """After its handlers have ended, not before."""
    client = http.client()
    tools = tools_of(client)
    entered = threading.Event()
    go_on = threading.Event()

    def handler() -> dict[str, int]:
        entered.set()
        go_on.wait(20)
        result: dict[str, int] = tools["add"](a=1)
        return result

    agent = rebuno.Agent("mcp-agent", kernel=kernel, closes=[client])
    agent.bind(handler)
    execution = kernel.create("mcp-agent").id
    assert entered.wait(20)
    with background(agent.close):
        go_on.set()
    assert kernel.get(execution).output == {"result": 2}
    with pytest.raises(RuntimeError, match="closed"):
        client.list_tools()


def test_a_server_that_forgot_its_sessions_is_asked_in_a_new_one(tmp_path: Path) -> None:
    """It has not run the call, so an ``at_most_once`` call is sent again too."""
    server = OldOverHTTP(tmp_path)
    try:
        client = server.client()
        before = client.call_tool("pid").structured_content
        server.kill(client, 0)
        server.start()
        after = client.call_tool("pid", repeat=False).structured_content
        assert after != before
    finally:
        server.close()
        server.end()


# Python 3.12 warns of every fork in a process with threads.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_connects_anew(server: Server) -> None:
    """And the parent's session goes on."""
    client = server.client()
    before = client.call_tool("pid").structured_content["result"]
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(write, str(client.call_tool("pid").structured_content["result"]).encode())
            client.close()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        in_child = answer.read()
    os.waitpid(pid, 0)
    assert in_child.isdigit()
    assert isinstance(server, OverHTTP) or int(in_child) != before
    assert client.call_tool("pid").structured_content["result"] == before


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: MCPClient("tools.py"), ValueError, "a URL or a command as a list"),
        (lambda: MCPClient([]), ValueError, "must not be empty"),
        (lambda: MCPClient(["x"], headers={"a": "b"}), TypeError, "headers go with a URL"),
        (lambda: MCPClient("http://x", env={"a": "b"}), TypeError, "env and cwd go with a command"),
    ],
)
def test_bad_arguments_are_found_at_once(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize("command", [["/no/such/program"], ["/bin/true"]])
def test_a_command_that_is_no_server_is_one_clear_error_at_once(command: list[str]) -> None:
    with MCPClient(command) as client, pytest.raises(ConnectionError) as caught:
        client.list_tools()
    assert "listing the tools at the MCP server" in str(caught.value)
    assert command[0] in str(caught.value)


def test_an_error_keeps_what_may_be_secret() -> None:
    """Of a URL its credentials and query, of a command its arguments."""
    for server in ("http://user:secret@127.0.0.1:9/mcp?key=secret", ["/bin/false", "secret"]):
        with MCPClient(server, connect_timeout=0.1) as client:
            with pytest.raises(ConnectionError, match="listing the tools at the MCP") as caught:
                client.list_tools()
            assert "secret" not in str(caught.value)
            again = pickle.loads(pickle.dumps(caught.value))
            assert (type(again), str(again)) == (ConnectionLost, str(caught.value))


def test_closing_gives_up_a_server_that_never_answers() -> None:
    """The thread ends at once, though the server has not said a word."""
    client = MCPClient([sys.executable, "-c", "import sys; sys.stdin.read()"])
    with background(client.list_tools) as listing:
        wait_until(lambda: client._connection._session is not None, "the server being started")
        started = time.monotonic()
        client.close()
        with pytest.raises(ConnectionError):
            listing.result()
    assert time.monotonic() - started < 5
    assert not any(it.name == "rebuno-mcp" for it in threading.enumerate())


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    """``rebuno_sync.mcp`` can be imported, and wraps tools."""
    program = """
import sys
sys.modules["mcp"] = None
from rebuno_sync.mcp import MCPClient, wrap_mcp_tool
wrap_mcp_tool({"name": "x"}, lambda name, arguments: None)
try:
    MCPClient("http://server/mcp")
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'rebuno-sync[mcp]'" in done.stdout, done.stderr


def test_a_url_where_nobody_listens_fails_at_once() -> None:
    """Long before ``connect_timeout``: nothing says that a server will ever be there."""
    with MCPClient("http://127.0.0.1:9/mcp", connect_timeout=60) as client:
        started = time.monotonic()
        with pytest.raises(ConnectionError, match="could not be reached"):
            client.list_tools()
        assert time.monotonic() - started < 20


@pytest.mark.slow
def test_a_server_that_is_gone_holds_a_call_only_for_a_moment(http: OverHTTP) -> None:
    """It may be starting again, so it is tried for a while, once, and not for
    ``connect_timeout``."""
    client = http.client(connect_timeout=300)
    assert client.list_tools()
    http.kill(client, 0)
    started = time.monotonic()
    for _ in range(5):
        with pytest.raises(ConnectionError):
            client.list_tools()
    assert time.monotonic() - started < 45


def test_a_refused_request_is_the_packages_own_error(http: OverHTTP) -> None:
    """It passes as it is, and the session goes on."""
    client = http.client()
    before = client.call_tool("pid").structured_content

    async def refused(session: mcp.Client) -> object:
        return await session.get_prompt("no such prompt")

    with pytest.raises(mcp.MCPError):
        client._ask("asking", refused, repeat=False)
    assert client.call_tool("pid").structured_content == before
