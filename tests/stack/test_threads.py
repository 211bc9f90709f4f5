"""Taking an execution into other threads: ``carry`` and ``ThreadPoolExecutor``."""

from __future__ import annotations

import concurrent.futures
import contextvars
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures.thread import BrokenThreadPool
from pathlib import Path
from typing import Any

import pytest
from support.attempts import background
from support.children import ChildScript
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import ExecutionFailed, Interrupted, NoActiveExecution, ToolError
from rebuno_sync.kernel import Kernel

TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


class Squares:
    """A tool that counts its bodies, some of which are cut down once."""

    def __init__(self) -> None:
        self.bodies: Counter[int] = Counter()
        self.cut_down: set[int] = set()
        self.together: threading.Barrier | None = None
        self.tool = rebuno.tool("square")(self._body)

    def _body(self, n: int) -> int:
        self.bodies[n] += 1
        if self.together is not None:
            self.together.wait(10)
        if n in self.cut_down:
            self.cut_down.remove(n)
            raise Interrupted("cut down")
        return n * n


# -- C1


def test_c1_a_plain_pool_raises_and_names_the_fix(kernel: Kernel) -> None:
    """Effects in threads that lost their execution are refused, never silently unrecorded."""
    squares = Squares()

    def handler() -> list[int]:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            return list(pool.map(squares.tool, range(4)))

    with pytest.raises(ExecutionFailed) as caught:
        rebuno.run(handler, kernel=kernel)
    cause = caught.value.__cause__
    assert isinstance(cause, NoActiveExecution)
    assert "rebuno_sync.ThreadPoolExecutor" in str(cause)
    assert "rebuno_sync.carry" in str(cause)
    assert not squares.bodies
    assert kernel.list_steps(caught.value.execution_id) == []


def test_c1_our_pool_records_each_call_once_and_replays_the_same_values(kernel: Kernel) -> None:
    """Interrupted after two of four, those two do not run again."""
    squares = Squares()
    squares.cut_down = {2, 3}
    values: list[list[int]] = []

    def handler() -> list[int]:
        # The pool cancels what has not begun at the first cut.
        first = rebuno.execution().dispatch_attempt == 1
        squares.together = threading.Barrier(4) if first else None
        with rebuno.ThreadPoolExecutor(4) as pool:
            values.append(list(pool.map(squares.tool, range(4))))
        if len(values) == 1:
            raise KeyboardInterrupt
        return values[-1]

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler, key="k", kernel=kernel)
    assert rebuno.run(handler, key="k", kernel=kernel) == [0, 1, 4, 9]
    assert values == [[0, 1, 4, 9]] * 2
    assert squares.bodies == {0: 1, 1: 1, 2: 2, 3: 2}
    [execution] = kernel.list().executions
    assert len(kernel.list_steps(execution.id)) == 4


def test_identical_calls_in_a_pool_are_steps_of_their_own(kernel: Kernel) -> None:
    """Eight at once: eight places, each result given once, live and replayed alike."""
    numbers = iter(range(100))
    seen: list[list[int]] = []

    @rebuno.tool
    def draw() -> int:
        return next(numbers)

    def handler() -> None:
        with rebuno.ThreadPoolExecutor(8) as pool:
            futures = [pool.submit(draw) for _ in range(8)]
            seen.append(sorted(future.result() for future in futures))
        if len(seen) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler, key="k", kernel=kernel)
    rebuno.run(handler, key="k", kernel=kernel)
    assert seen == [list(range(8))] * 2
    [execution] = kernel.list().executions
    assert sorted(step.occurrence for step in kernel.list_steps(execution.id)) == list(range(8))


# -- the pool


def test_the_pool_hands_exceptions_on(kernel: Kernel) -> None:
    """A failed effect's ``ToolError`` comes out of its future; the others are not touched."""

    @rebuno.tool
    def invert(n: int) -> float:
        return 1 / n

    def handler() -> list[Any]:
        with rebuno.ThreadPoolExecutor(2) as pool:
            futures = [pool.submit(invert, n) for n in (1, 0, 2)]
            error = futures[1].exception()
            assert isinstance(error, ToolError)
            assert isinstance(error.__cause__, ZeroDivisionError)
            with pytest.raises(ToolError):
                list(pool.map(invert, [0]))
            return [futures[0].result(), futures[2].result()]

    assert rebuno.run(handler, kernel=kernel) == [1.0, 0.5]


def test_the_pool_is_an_ordinary_one_outside_an_execution() -> None:
    """Everything that the base class takes works; contexts come along all the same."""
    token = TENANT.set("acme")
    try:
        with rebuno.ThreadPoolExecutor(max_workers=2, thread_name_prefix="mine") as pool:
            assert list(pool.map(pow, [2, 3], [3, 2])) == [8, 9]
            assert pool.submit(int, "11", base=2).result() == 3
            assert pool.submit(TENANT.get).result() == "acme"
            assert pool.submit(lambda: threading.current_thread().name).result().startswith("mine")
            with pytest.raises(NoActiveExecution):
                pool.submit(rebuno.execution).result()
    finally:
        TENANT.reset(token)


def test_one_pool_may_serve_several_executions(kernel: Kernel) -> None:
    """Whose execution a call is in is decided when it is submitted, not by the thread."""
    with rebuno.ThreadPoolExecutor(2) as pool:

        def handler() -> list[str]:
            futures = [pool.submit(lambda: rebuno.execution().id) for _ in range(4)]
            return sorted({future.result() for future in futures} | {rebuno.execution().id})

        def call() -> list[str]:
            return rebuno.run(handler, kernel=kernel)

        with background(call) as one, background(call) as other:
            pass
        assert len(one.result()) == len(other.result()) == 1
        assert one.result() != other.result()


# -- carry


def test_carry_takes_the_execution_and_the_callers_context_along(kernel: Kernel) -> None:
    """A plain thread performs effects, and sees the tenant variable that its starter saw."""
    squares = Squares()

    def handler() -> list[object]:
        def beside(n: int, *, times: int) -> tuple[object, ...]:
            return squares.tool(n) * times, TENANT.get(), rebuno.execution().id

        token = TENANT.set("acme")
        carried = rebuno.carry(beside)
        TENANT.reset(token)
        with background(lambda: carried(3, times=2)) as thread:
            pass
        value, tenant, execution_id = thread.result()
        assert execution_id == rebuno.execution().id
        return [value, tenant]

    assert rebuno.run(handler, kernel=kernel) == [18, "acme"]


def test_a_body_sees_the_context_of_its_caller(kernel: Kernel) -> None:
    """A variable that is set in the handler, or around ``run``, is seen by the bodies."""

    @rebuno.tool
    def tenant() -> str:
        return TENANT.get()

    def handler() -> list[str]:
        with rebuno.ThreadPoolExecutor(1) as pool:
            return [tenant(), pool.submit(tenant).result()]

    token = TENANT.set("acme")
    try:
        assert rebuno.run(handler, kernel=kernel) == ["acme", "acme"]
    finally:
        TENANT.reset(token)


def test_what_a_carried_call_sets_stays_in_it(kernel: Kernel) -> None:
    """Each call has a copy of the context, so calls may overlap and leave no traces."""
    both_inside = threading.Barrier(2, timeout=20)

    def beside(name: str) -> str:
        TENANT.set(name)
        both_inside.wait()
        rebuno.step("named", lambda: name)
        return TENANT.get()

    def handler() -> list[str]:
        carried = rebuno.carry(beside)
        with background(lambda: carried("a")) as one, background(lambda: carried("b")) as other:
            pass
        return [one.result(), other.result(), TENANT.get()]

    assert rebuno.run(handler, kernel=kernel) == ["a", "b", "nobody"]


def test_carry_keeps_the_functions_name_and_works_outside_an_execution() -> None:
    """It carries whatever context there is."""

    def named() -> str:
        """Say it."""
        return TENANT.get()

    carried = rebuno.carry(named)
    assert (carried.__name__, carried.__doc__) == ("named", "Say it.")
    assert carried() == "nobody"
    assert rebuno.carry(int)("3") == 3


def test_a_carried_thread_in_a_body_belongs_to_that_body(kernel: Kernel) -> None:
    """Effects that a body spreads over threads are nested in it: they replay under it."""
    squares = Squares()

    @rebuno.tool
    def total(n: int) -> int:
        with rebuno.ThreadPoolExecutor(4) as pool:
            return sum(pool.map(squares.tool, range(n)))

    values: list[int] = []

    def handler() -> None:
        values.append(total(4))
        if len(values) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler, key="k", kernel=kernel)
    rebuno.run(handler, key="k", kernel=kernel)
    assert values == [14, 14]
    assert squares.bodies == dict.fromkeys(range(4), 1)


def test_effects_that_are_left_running_are_recorded_before_the_completion(kernel: Kernel) -> None:
    """A handler that returns while its effects run in other threads completes after them."""
    begun = threading.Event()
    threads: list[threading.Thread] = []

    @rebuno.tool
    def beside() -> str:
        begun.set()
        threading.Event().wait(0.1)
        return "recorded"

    def handler() -> str:
        thread = threading.Thread(target=rebuno.carry(beside))
        threads.append(thread)
        thread.start()
        begun.wait(20)
        return "returned"

    assert rebuno.run(handler, kernel=kernel) == "returned"
    threads[0].join(20)
    [execution] = kernel.list().executions
    [step] = kernel.list_steps(execution.id)
    assert (step.status, step.result) == ("succeeded", "recorded")
    assert kernel.events(execution.id)[-1].type == "execution.completed"


@pytest.mark.parametrize("effect", [rebuno.execution, lambda: rebuno.step("x", lambda: 1)])
def test_a_thread_that_is_nobodys_is_told_so_while_executions_are_live(
    kernel: Kernel, effect: Callable[[], object]
) -> None:
    """The same call is told two different things: outside of everything, and beside a handler."""
    inside, done = threading.Event(), threading.Event()

    def handler() -> None:
        inside.set()
        done.wait(20)

    with pytest.raises(NoActiveExecution, match="outside an execution"):
        effect()
    with background(lambda: rebuno.run(handler, kernel=kernel)):
        inside.wait(20)
        with pytest.raises(NoActiveExecution, match="has lost the execution"):
            effect()
        done.set()


# -- the pool's threads


@pytest.mark.parametrize("where", ["pool", "parallel"])
def test_the_interpreter_does_not_wait_for_a_hung_body(tmp_path: Path, where: str) -> None:
    """Its threads are daemons; the exit is as quick as without them."""
    program = Path(__file__).parent / "programs" / "hung_body.py"
    with ChildScript(program, tmp_path, db=tmp_path / "kernel.db", where=where).start() as child:
        child.hears("ends now")
        assert child.ends_within(10)
        assert child.returncode() == 0, child.errors


def test_a_pool_has_no_more_threads_than_it_may() -> None:
    """However much is submitted; they end when it is shut down."""
    names = {f"bounded-{number}" for number in range(40)}
    seen: set[int] = set()
    together = threading.Barrier(3)

    def body(_: str) -> None:
        seen.add(threading.get_ident())
        together.wait(20)

    with rebuno.ThreadPoolExecutor(3, "bounded") as pool:
        list(pool.map(body, sorted(names)[:39]))
    assert len(seen) <= 3
    wait_until(
        lambda: not [it for it in threading.enumerate() if it.name == "bounded"],
        "the end of the threads",
    )


def test_nothing_is_submitted_after_a_shutdown() -> None:
    """What was queued runs all the same, or is cancelled when that is asked for."""
    begun, go = threading.Event(), threading.Event()

    def hold() -> str:
        begun.set()
        assert go.wait(20)
        return "held"

    pool = rebuno.ThreadPoolExecutor(1)
    held, queued = pool.submit(hold), pool.submit(lambda: "queued")
    assert begun.wait(20)
    pool.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(hold)
    go.set()
    assert (held.result(20), queued.result(20)) == ("held", "queued")
    begun.clear(), go.clear()
    other = rebuno.ThreadPoolExecutor(1)
    held, queued = other.submit(hold), other.submit(lambda: "queued")
    assert begun.wait(20)
    other.shutdown(wait=False, cancel_futures=True)
    go.set()
    assert held.result(20) == "held"
    assert queued.cancelled()
    pool.shutdown()
    other.shutdown()


def test_each_thread_of_a_pool_is_begun_by_the_initializer() -> None:
    """Once; when it fails, nothing that waits will run."""
    begun: list[str] = []
    with rebuno.ThreadPoolExecutor(1, initializer=begun.append, initargs=("x",)) as pool:
        assert [pool.submit(len, "ab").result(20) for _ in range(3)] == [2, 2, 2]
    assert begun == ["x"]
    with rebuno.ThreadPoolExecutor(1, initializer=lambda: 1 / 0) as broken:
        futures = [broken.submit(len, "ab") for _ in range(2)]
        with pytest.raises(BrokenThreadPool):
            futures[0].result(20)
        with pytest.raises(BrokenThreadPool):
            broken.submit(len, "ab").result(20)


def test_a_pool_that_was_used_before_a_fork_serves_both_sides(tmp_path: Path) -> None:
    """The child has none of its threads, and begins its own."""
    program = Path(__file__).parent / "programs" / "forked_pool.py"
    # Newer interpreters warn of forks beside threads; the child is meant to work all the same.
    script = ChildScript(
        program,
        tmp_path,
        options=("-W", "error", "-W", "ignore:This process:DeprecationWarning"),
        db=tmp_path / "kernel.db",
    )
    values = [2, 2, 4, 6, 6]
    assert script.run() == [values, values, 0]
