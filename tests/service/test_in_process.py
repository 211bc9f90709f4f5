"""``Agent(kernel=...)`` and ``run``: kernel and handler in one process, and how they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.attempts import background
from support.children import ChildScript
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import ExecutionCancelled, RebunoError, StorageError, ValidationError
from rebuno_sync.kernel import Kernel

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "own.db"


@pytest.fixture
def kernel(path: Path) -> Iterator[Kernel]:
    with Kernel(path) as kernel:
        yield kernel


class Waiting:
    """A handler that waits for a minute, and when it began and ended."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.ended: list[float] = []
        self.execution_id = ""

    def handler(self) -> None:
        self.execution_id = rebuno.execution().id
        self.began.set()
        try:
            rebuno.execution().wait(60)
        finally:
            self.ended.append(time.monotonic())


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


# -- the kernel closes first


def test_an_agent_closes_well_after_its_kernel(path: Path, waiting: Waiting) -> None:
    """Its handlers are ended all the same, and a second close has nothing to do."""
    kernel = Kernel(path)
    agent = rebuno.Agent("here", kernel=kernel, grace=0.0)
    agent.bind(waiting.handler)
    kernel.create("here")
    assert waiting.began.wait(20)
    kernel.close()
    agent.close()
    assert agent.join(20)
    assert waiting.ended
    agent.close()
    kernel.close()


def test_an_effect_after_the_kernel_was_closed_ends_the_attempt(path: Path) -> None:
    """It is not recorded; when its lease has run out, a kernel on the same file goes on there."""
    began, go_on = threading.Event(), threading.Event()

    def handler() -> int:
        first = rebuno.step("first", lambda: 1)
        began.set()
        go_on.wait(20)
        return first + int(str(rebuno.step("second", lambda: 2)))

    kernel = Kernel(path, lease_timeout=1.0)
    with rebuno.Agent("here", kernel=kernel, grace=20.0) as agent:
        agent.bind(handler)
        execution = kernel.create("here")
        assert began.wait(20)
        kernel.close()
        go_on.set()
        assert agent.join(20)
    with Kernel(path) as again, rebuno.Agent("here", kernel=again) as agent:
        agent.bind(handler)
        assert again.wait(execution.id, timeout=20).output == 3
        assert {step.target for step in again.list_steps(execution.id)} == {"first", "second"}


@pytest.mark.parametrize(
    "ask",
    [
        lambda kernel: kernel.create("here"),
        lambda kernel: kernel.cancel("00000000-0000-0000-0000-000000000000"),
        lambda kernel: kernel.wait("00000000-0000-0000-0000-000000000000", timeout=1),
        lambda kernel: kernel.list(),
        lambda kernel: kernel.agents(),
        lambda kernel: kernel.register_agent("here"),
        lambda kernel: kernel.host("here", lambda lease, seconds: True),
        lambda kernel: rebuno.Agent("here", kernel=kernel).bind(lambda: None),
        lambda kernel: rebuno.run(lambda: None, agent="here", kernel=kernel),
    ],
)
def test_a_closed_kernel_says_so(path: Path, ask: Callable[[Kernel], object]) -> None:
    """With its file, and what to do."""
    kernel = Kernel(path)
    kernel.close()
    kernel.close()
    with pytest.raises(StorageError, match=r"own\.db'\) is closed; open another one"):
        ask(kernel)


def test_what_ends_nothing_of_a_closed_kernel_is_quiet(path: Path) -> None:
    kernel = Kernel(path)
    kernel.close()
    kernel.unhost("here")
    kernel.stop_deliveries()


def test_an_agent_is_closed_by_its_with_block(kernel: Kernel) -> None:
    with rebuno.Agent("here", kernel=kernel) as agent:
        agent.bind(lambda: "done")
        assert kernel.wait(kernel.create("here").id, timeout=20).output == "done"
    late = kernel.create("here")
    assert kernel.claim(late.id) is not None, "a closed agent has not taken it"


# -- what a kernel accepts


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e9 + 1])
@pytest.mark.parametrize("name", ["lease_timeout", "deadline"])
def test_a_time_that_makes_no_sense_is_refused(path: Path, name: str, seconds: float) -> None:
    """By its name, before there is a file."""
    options: dict[str, Any] = {name: seconds}
    with pytest.raises(ValueError, match=f"{name} must be positive and at most 1000000000 seconds"):
        Kernel(path, **options)
    assert not path.exists()


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 2e9])
def test_a_lease_that_no_agent_takes_is_not_registered(kernel: Kernel, seconds: float) -> None:
    with pytest.raises(ValidationError, match="lease_timeout_seconds must be 10 to 1000000000 sec"):
        kernel.register_agent("here", lease_timeout_seconds=seconds)
    with pytest.raises(ValidationError, match="webhook_url must be an http:// or https:// address"):
        kernel.register_agent("here", webhook_url="localhost:5000")
    assert kernel.agents() == []


# -- one handler, one agent


def first() -> str:
    return "first"


def second() -> str:
    return "second"


def test_a_second_handler_is_refused_by_name(kernel: Kernel) -> None:
    """The first one stays; binding it again is nothing new."""
    with rebuno.Agent("here", kernel=kernel) as agent:
        assert agent.bind(first) is first
        assert agent.bind(first) is first
        with pytest.raises(ValueError, match=r"'here' has the handler first.*serve second"):
            agent.bind(second)
        assert kernel.wait(kernel.create("here").id, timeout=20).output == "first"


def test_a_method_may_be_bound_again(kernel: Kernel, waiting: Waiting) -> None:
    """Each look at a method makes another object of it."""
    with rebuno.Agent("here", kernel=kernel, grace=0.0) as agent:
        agent.bind(waiting.handler)
        agent.bind(waiting.handler)


def test_two_agents_of_one_id_on_one_kernel_are_refused(kernel: Kernel) -> None:
    """The second may take the first's place once that is closed."""
    with rebuno.Agent("here", kernel=kernel) as one, rebuno.Agent("here", kernel=kernel) as two:
        one.bind(first)
        with pytest.raises(ValueError, match=r"'here' is hosted on this Kernel already.*close"):
            two.bind(second)
        assert kernel.wait(kernel.create("here").id, timeout=20).output == "first"
        one.close()
        two.bind(second)
        one.close()
        assert kernel.wait(kernel.create("here").id, timeout=20).output == "second"


# -- a cancel is noticed


def cancel_here(kernel: Kernel, execution_id: str, tmp_path: Path) -> float:
    at = time.monotonic()
    kernel.cancel(execution_id)
    return at


def cancel_by_another_kernel(kernel: Kernel, execution_id: str, tmp_path: Path) -> float:
    with Kernel(kernel.path) as another:
        return cancel_here(another, execution_id, tmp_path)


def cancel_by_another_process(kernel: Kernel, execution_id: str, tmp_path: Path) -> float:
    script = ChildScript(PROGRAMS / "canceller.py", tmp_path, db=kernel.path)
    with script.start(execution=execution_id) as child:
        child.hears("cancelled")
        return time.monotonic()


Cancel = Callable[[Kernel, str, Path], float]
CANCELS = pytest.mark.parametrize(
    "cancel", [cancel_here, cancel_by_another_kernel, cancel_by_another_process]
)


@CANCELS
def test_c07_a_cancel_ends_a_hosted_handler_within_a_second(
    kernel: Kernel, waiting: Waiting, tmp_path: Path, cancel: Cancel
) -> None:
    """Whoever cancels: the handler does not wait for its next heartbeat."""
    with rebuno.Agent("here", kernel=kernel) as agent:
        agent.bind(waiting.handler)
        execution = kernel.create("here")
        assert waiting.began.wait(20)
        at = cancel(kernel, execution.id, tmp_path)
        assert agent.join(20)
    assert waiting.ended[0] - at < 1.0


@CANCELS
def test_c07_a_cancel_ends_a_run_within_a_second(
    kernel: Kernel, waiting: Waiting, tmp_path: Path, cancel: Cancel
) -> None:
    """``run`` raises ``ExecutionCancelled``."""
    with background(lambda: rebuno.run(waiting.handler, kernel=kernel)) as running:
        assert waiting.began.wait(20)
        at = cancel(kernel, waiting.execution_id, tmp_path)
        with pytest.raises(ExecutionCancelled):
            running.result()
    assert waiting.ended[0] - at < 1.0


def test_c07_a_deadline_ends_a_handler_within_a_second(path: Path, waiting: Waiting) -> None:
    """Of the kernel of its own process."""
    with (
        Kernel(path, deadline=0.5) as kernel,
        rebuno.Agent("here", kernel=kernel) as agent,
    ):
        agent.bind(waiting.handler)
        execution = kernel.create("here")
        assert waiting.began.wait(20)
        with pytest.raises(ExecutionCancelled):
            kernel.wait(execution.id, timeout=20)
        over = time.monotonic()
        assert agent.join(20)
    assert waiting.ended[0] - over < 1.0


def test_c07_an_attempt_that_was_cancelled_before_it_is_watched_ends_too(
    kernel: Kernel, path: Path
) -> None:
    """The first look finds what was over before."""
    told = threading.Event()
    kernel.register_agent("here")
    claim = kernel.claim(kernel.create("here").id)
    assert claim is not None
    kernel.cancel(claim.lease.execution_id)
    kernel.watch_lease(claim.lease, told.set)
    assert told.wait(20)


def test_the_thread_that_watches_ends_with_its_file(path: Path) -> None:
    with Kernel(path) as kernel:
        assert rebuno.run(first, kernel=kernel) == "first"
        assert "rebuno-watch" in {thread.name for thread in threading.enumerate()}
    assert "rebuno-watch" not in {thread.name for thread in threading.enumerate()}


# -- why nothing happens


def test_a_wait_in_vain_says_that_no_agent_took_the_execution(kernel: Kernel) -> None:
    kernel.register_agent("nobody")
    execution = kernel.create("nobody")
    with pytest.raises(TimeoutError, match=r"after 0\.01 s: no agent 'nobody' .*does one run\?"):
        kernel.wait(execution.id, timeout=0.01)


def test_a_wait_for_a_handler_that_works_says_no_more(kernel: Kernel, waiting: Waiting) -> None:
    with rebuno.Agent("here", kernel=kernel, grace=0.0) as agent:
        agent.bind(waiting.handler)
        execution = kernel.create("here")
        assert waiting.began.wait(20)
        with pytest.raises(TimeoutError, match=r"still running after 0\.01 s$"):
            kernel.wait(execution.id, timeout=0.01)


def test_a_wait_tells_of_attempts_that_ended_nothing(kernel: Kernel) -> None:
    """An execution that begins again and again is not just running."""
    again = threading.Event()

    def handler() -> None:
        if rebuno.execution().dispatch_attempt == 1:
            rebuno.execution().interrupt("as a test says")
            return
        again.set()
        rebuno.execution().wait(60)

    with rebuno.Agent("here", kernel=kernel, grace=0.0) as agent:
        agent.bind(handler)
        execution = kernel.create("here")
        assert again.wait(20)
        with pytest.raises(TimeoutError, match="; attempt 2 of it was begun last, and those"):
            kernel.wait(execution.id, timeout=0.01)


# -- a handler that waits, and its threads


def test_a_signal_in_another_thread_wakes_a_handler_that_waits(kernel: Kernel) -> None:
    """Not only the end of the lease does: here an effect finds the file unusable."""
    waits = threading.Event()
    woke: list[float] = []
    raised: list[float] = []

    def effect() -> None:
        waits.wait(20)
        kernel.close()
        raised.append(time.monotonic())
        rebuno.step("late", lambda: 1)

    def handler() -> None:
        thread = threading.Thread(target=quiet(rebuno.carry(effect)), daemon=True)
        thread.start()
        waits.set()
        try:
            rebuno.execution().wait(60)
        finally:
            woke.append(time.monotonic())

    with rebuno.Agent("here", kernel=kernel, grace=20.0) as agent:
        agent.bind(handler)
        kernel.create("here")
        wait_until(lambda: woke, "the handler's waking")
        assert agent.join(20)
    assert woke[0] - raised[0] < 1.0


def quiet(work: Callable[[], object]) -> Callable[[], None]:
    def call() -> None:
        with suppress(rebuno.Signal, RebunoError):
            work()

    return call
