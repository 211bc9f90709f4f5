"""``run(retry_failed=True)``: an execution that failed is tried again under its key."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.children import ChildScript
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

PROGRAMS = Path(__file__).parent / "programs"


class Shop:
    """Effects that count their bodies, and fail while they are told to."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.failing: set[str] = set()

    def body(self, name: str) -> str:
        self.ran.append(name)
        if name in self.failing:
            raise ValueError(f"{name} fails")
        return name

    def tool(self, name: str, **terms: object) -> rebuno.Tool[[], str]:
        return rebuno.tool(name, **terms)(lambda: self.body(name))  # type: ignore[arg-type, return-value]


@pytest.fixture
def shop() -> Shop:
    return Shop()


def fails(handler: object, kernel: Kernel, **how: object) -> str:
    """Why the execution with the key ``k`` failed."""
    with pytest.raises(rebuno.ExecutionFailed) as caught:
        rebuno.run(handler, key="k", kernel=kernel, **how)  # type: ignore[call-overload]
    return str(caught.value)


def test_what_succeeded_replays_and_what_failed_runs_again(kernel: Kernel, shop: Shop) -> None:
    """The fork takes over the key: it is what the key names from then on."""
    a, b = shop.tool("a"), shop.tool("b")

    def handler() -> list[str]:
        return [a(), b()]

    shop.failing = {"b"}
    fails(handler, kernel)
    fails(handler, kernel)
    assert shop.ran == ["a", "b"]
    shop.failing.clear()
    for _ in range(2):
        assert rebuno.run(handler, key="k", kernel=kernel, retry_failed=True) == ["a", "b"]
    assert rebuno.run(handler, key="k", kernel=kernel) == ["a", "b"]
    assert shop.ran == ["a", "b", "b"]
    fork, source = kernel.list().executions
    assert (fork.forked_from, fork.status, source.status) == (source.id, "completed", "failed")
    assert (fork.idempotency_key, source.idempotency_key) == ("k", None)


def test_a_retry_may_fail_and_be_retried(kernel: Kernel, shop: Shop) -> None:
    """Each one is a fork of the one before."""
    a = shop.tool("a")

    def handler() -> str:
        return a()

    shop.failing = {"a"}
    for _ in range(3):
        assert "a fails" in fails(handler, kernel, retry_failed=True)
    assert shop.ran == ["a", "a", "a"]
    third, second, first = kernel.list().executions
    assert (third.forked_from, second.forked_from) == (second.id, first.id)


def test_a_failure_that_the_handler_went_on_after_is_kept(kernel: Kernel, shop: Shop) -> None:
    """It took that way because of it."""
    a, b = shop.tool("a"), shop.tool("b")

    def handler() -> str:
        try:
            return a()
        except rebuno.ToolError:
            return b()

    shop.failing = {"a", "b"}
    fails(handler, kernel)
    shop.failing.clear()
    assert rebuno.run(handler, key="k", kernel=kernel, retry_failed=True) == "b"
    assert shop.ran == ["a", "b", "b"]


def test_a_failure_within_a_failure_runs_again_with_it(kernel: Kernel, shop: Shop) -> None:
    """Both, since the outer failed of the inner one; what succeeded in there replays."""
    a, b = shop.tool("a"), shop.tool("b")

    @rebuno.tool
    def outer() -> list[str]:
        shop.ran.append("outer")
        return [a(), b()]

    def handler() -> list[str]:
        return outer()

    shop.failing = {"b"}
    fails(handler, kernel)
    shop.failing.clear()
    assert rebuno.run(handler, key="k", kernel=kernel, retry_failed=True) == ["a", "b"]
    assert shop.ran == ["outer", "a", "b", "outer", "b"]


def test_a_call_that_failed_beside_others_runs_again(kernel: Kernel, shop: Shop) -> None:
    """Also when others began after it."""
    a, b, c = shop.tool("a"), shop.tool("b"), shop.tool("c")

    def handler() -> list[str]:
        return rebuno.parallel([a, b, c])

    shop.failing = {"a"}
    fails(handler, kernel)
    shop.failing.clear()
    assert rebuno.run(handler, key="k", kernel=kernel, retry_failed=True) == ["a", "b", "c"]
    assert sorted(shop.ran) == ["a", "a", "b", "c"]


def test_a_subagent_that_failed_beside_others_is_asked_again(kernel: Kernel, shop: Shop) -> None:
    """Also when others began after it. The reason tells which execution it was."""
    failing = [True]

    def expert() -> str:
        if failing:
            raise ValueError("no idea")
        return "an answer"

    @rebuno.tool
    def ask() -> str:
        answer: str = rebuno.subagent("expert")
        return answer

    def handler() -> list[str]:
        asked = pool.submit(ask)
        wait_until(lambda: kernel.list(agent_id="expert", status="failed").executions, "a failure")
        b = shop.tool("b")()
        return [asked.result(20), b]

    agent = rebuno.Agent("expert", kernel=kernel, grace=0)
    agent.bind(expert)
    with rebuno.ThreadPoolExecutor(2) as pool:
        why = fails(handler, kernel)
        [child] = kernel.list(agent_id="expert").executions
        assert f"subagent_failed: execution {child.id}: agent_error: ValueError: no idea" in why
        failing.clear()
        assert rebuno.run(handler, key="k", kernel=kernel, retry_failed=True) == ["an answer", "b"]
    agent.close()


def test_what_must_not_run_twice_replays_its_failure(kernel: Kernel, shop: Shop) -> None:
    """Retrying does not help it."""
    charge = shop.tool("charge", idempotency="at_most_once")

    def handler() -> str:
        return charge()

    shop.failing = {"charge"}
    fails(handler, kernel)
    shop.failing.clear()
    assert "charge fails" in fails(handler, kernel, retry_failed=True)
    assert shop.ran == ["charge"]


def test_a_failure_of_the_handler_itself(kernel: Kernel, shop: Shop) -> None:
    """Everything recorded replays, and its code runs again."""
    a = shop.tool("a")
    broken = threading.Event()
    broken.set()

    def handler() -> str:
        value = a()
        if broken.is_set():
            raise RuntimeError("a bug")
        return value

    fails(handler, kernel)
    broken.clear()
    assert rebuno.run(handler, key="k", kernel=kernel, retry_failed=True) == "a"
    assert shop.ran == ["a"]


def test_only_failures_are_retried(kernel: Kernel, shop: Shop) -> None:
    """A result is returned, a cancellation raised, a new key begins, another input is a
    conflict."""
    a = shop.tool("a")

    def handler(n: int = 0) -> str:
        if n:
            kernel.cancel(rebuno.execution().id)
        return a()

    for _ in range(2):
        assert rebuno.run(handler, key="new", kernel=kernel, retry_failed=True) == "a"
    for _ in range(2):
        with pytest.raises(rebuno.ExecutionCancelled):
            rebuno.run(handler, {"n": 1}, key="k", kernel=kernel, retry_failed=True)
    shop.failing = {"a"}
    with pytest.raises(rebuno.ExecutionFailed):
        rebuno.run(handler, key="failed", kernel=kernel)
    with pytest.raises(rebuno.ConflictError):
        rebuno.run(handler, {"n": 1}, key="failed", kernel=kernel, retry_failed=True)
    assert len(kernel.list().executions) == 3


def test_who_comes_second_gets_what_the_fork_of_the_first_comes_to(
    kernel: Kernel, shop: Shop
) -> None:
    """Also its failure: one call retries once."""
    a = shop.tool("a")
    begun, go_on = threading.Event(), threading.Event()

    def handler() -> str:
        if shop.ran:
            begun.set()
            go_on.wait(20)
        return a()

    shop.failing = {"a"}
    fails(handler, kernel)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(fails, handler, kernel, retry_failed=True)
        assert begun.wait(20)
        second = pool.submit(fails, handler, kernel, retry_failed=True)
        wait_until(lambda: len(kernel.list().executions) == 2, "the fork")
        go_on.set()
        assert "a fails" in first.result(20)
        assert "a fails" in second.result(20)
    assert len(kernel.list().executions) in (2, 3)


@pytest.mark.slow
def test_eight_processes_that_retry_at_once_make_one_fork(tmp_path: Path) -> None:
    """The key goes to the first; the others wait for its result."""
    script = ChildScript(PROGRAMS / "retries_failed.py", tmp_path)
    assert "not yet" in str(script.run(folder=tmp_path))
    (tmp_path / "mended").touch()
    with ExitStack() as stack:
        children = [stack.enter_context(script.start(folder=tmp_path)) for _ in range(8)]
        assert [child.result(60) for child in children] == ["done"] * 8
    with Kernel(tmp_path / "kernel.db") as kernel:
        assert len(kernel.list().executions) == 2
    assert (tmp_path / "tries").read_text() == ".."


def test_a_retry_needs_a_key(kernel: Kernel) -> None:
    """Without one there is nothing that could have failed before."""
    with pytest.raises(ValueError, match="needs the key"):
        rebuno.run(lambda: 1, agent="a", kernel=kernel, retry_failed=True)
