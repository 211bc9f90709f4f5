"""``run``: a handler and the embedded kernel in one process."""

from __future__ import annotations

import datetime as dt
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydantic
import pytest
from support.attempts import background
from support.children import ChildScript

import rebuno_sync as rebuno
from rebuno_sync import (
    ConflictError,
    ExecutionCancelled,
    ExecutionFailed,
    StorageError,
    ValidationError,
)
from rebuno_sync.kernel import Kernel

PROGRAMS = Path(__file__).parent / "programs"


class Report(pydantic.BaseModel):
    at: dt.datetime
    words: set[str] = set()


# -- the output


def test_the_output_is_decoded_by_the_return_annotation_first_and_again(kernel: Kernel) -> None:
    """A model comes back as a model: from the run, and from a later call with its key."""
    bodies: list[int] = []

    def handler() -> Report:
        bodies.append(1)
        return Report(at=dt.datetime(2026, 1, 2, tzinfo=dt.UTC), words={"a", "b"})

    handler.__annotations__["return"] = Report
    first = rebuno.run(handler, key="k", kernel=kernel)
    again = rebuno.run(handler, key="k", kernel=kernel)
    assert first == again == Report(at=dt.datetime(2026, 1, 2, tzinfo=dt.UTC), words={"a", "b"})
    assert bodies == [1]
    assert kernel.list().executions[0].output["words"] == ["a", "b"]


def test_the_output_is_the_recorded_form_also_without_annotation(kernel: Kernel) -> None:
    """A tuple comes back as a list both times."""

    def handler():  # type: ignore[no-untyped-def]
        return {"pair": (1, 2)}

    assert rebuno.run(handler, key="k", kernel=kernel) == {"pair": [1, 2]}
    assert rebuno.run(handler, key="k", kernel=kernel) == {"pair": [1, 2]}


def test_a_call_that_joins_a_running_execution_gets_its_decoded_output(kernel: Kernel) -> None:
    """The handler runs once; the one who waits gets what the one who runs gets."""
    inside, go_on = threading.Event(), threading.Event()
    bodies: list[int] = []

    def handler() -> dt.date:
        bodies.append(1)
        inside.set()
        go_on.wait(20)
        return dt.date(2026, 1, 2)

    handler.__annotations__["return"] = dt.date

    def call() -> dt.date:
        return rebuno.run(handler, key="k", kernel=kernel)

    with background(call) as first:
        inside.wait(20)
        with background(call) as second:
            go_on.set()
    assert first.result() == second.result() == dt.date(2026, 1, 2)
    assert bodies == [1]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, threading.Lock()]}, r"output\.a\[1\]"),
        (float("nan"), "output"),
        ({1, 2}, "output"),
    ],
)
def test_an_output_that_is_not_json_fails_the_execution_at_once(
    kernel: Kernel, value: object, path: str
) -> None:
    """With the place and the next step in the reason; the handler does not run again."""
    bodies: list[int] = []

    def handler():  # type: ignore[no-untyped-def]
        bodies.append(1)
        return value

    for _ in range(2):
        with pytest.raises(ExecutionFailed, match=f"output_invalid: {path}: ") as caught:
            rebuno.run(handler, key="k", kernel=kernel)
        assert "annotate" in caught.value.reason or "use None" in caught.value.reason
    assert bodies == [1]


# -- other ends


def test_a_failed_execution_raises_the_same_reason_again(kernel: Kernel) -> None:
    """The first call chains the handler's own exception; a later one has its reason."""

    def handler() -> None:
        raise LookupError("no such order")

    with pytest.raises(ExecutionFailed) as first:
        rebuno.run(handler, key="k", kernel=kernel)
    with pytest.raises(ExecutionFailed) as again:
        rebuno.run(handler, key="k", kernel=kernel)
    assert isinstance(first.value.__cause__, LookupError)
    assert first.value.reason == again.value.reason == "agent_error: LookupError: no such order"
    assert first.value.execution_id == again.value.execution_id
    assert str(first.value) == str(again.value)
    assert "no such order" in str(first.value)


def test_an_execution_that_is_cancelled_by_another_thread_raises_in_the_one_that_runs_it(
    kernel: Kernel,
) -> None:
    """``ExecutionCancelled``, with the reason, now and for a later call with its key."""
    inside, cancelled = threading.Event(), threading.Event()

    def handler() -> None:
        inside.set()
        cancelled.wait(20)
        rebuno.step("late", time.time)

    def call() -> None:
        rebuno.run(handler, key="k", kernel=kernel)

    with background(call) as thread:
        inside.wait(20)
        [execution] = kernel.list().executions
        kernel.cancel(execution.id)
        cancelled.set()
        with pytest.raises(ExecutionCancelled) as caught:
            thread.result()
    assert caught.value.execution_id == execution.id
    assert caught.value.reason == "client_cancelled"
    with pytest.raises(ExecutionCancelled):
        call()
    assert kernel.list_steps(execution.id) == []


def test_a_timeout_leaves_the_execution_to_whoever_runs_it(kernel: Kernel) -> None:
    """``TimeoutError`` says which execution, and that it goes on."""
    inside, go_on = threading.Event(), threading.Event()

    def handler() -> str:
        inside.set()
        go_on.wait(20)
        return "done"

    with background(lambda: rebuno.run(handler, key="k", kernel=kernel)) as thread:
        inside.wait(20)
        [execution] = kernel.list().executions
        with pytest.raises(TimeoutError, match=execution.id) as caught:
            rebuno.run(handler, key="k", kernel=kernel, timeout=0.05)
        assert "goes on without this call" in str(caught.value)
        go_on.set()
        assert thread.result() == "done"


# -- interrupts


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_gives_the_lease_back_and_leaves_the_step(
    kernel: Kernel, interrupt: type[BaseException]
) -> None:
    """Another process may go on at once; the step that was struck is still executing."""
    attempts: list[int] = []

    @rebuno.tool
    def work() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise interrupt
        return "done"

    def handler() -> str:
        return work()

    with pytest.raises(interrupt):
        rebuno.run(handler, key="k", kernel=kernel)
    [execution] = kernel.list().executions
    assert execution.status == "running"
    [step] = kernel.list_steps(execution.id)
    assert step.status == "executing"
    with background(lambda: rebuno.run(handler, key="k", kernel=kernel, timeout=5)) as other:
        pass
    assert other.result() == "done"
    assert len(attempts) == 2


def test_any_number_of_interrupts_exhausts_nothing(kernel: Kernel) -> None:
    """A lease that was given back is no strike: Ctrl-C is not a crash."""
    attempts: list[int] = []

    def handler() -> int:
        attempts.append(1)
        if len(attempts) <= 20:
            raise KeyboardInterrupt
        return len(attempts)

    for _ in range(20):
        with pytest.raises(KeyboardInterrupt):
            rebuno.run(handler, key="k", kernel=kernel)
    assert rebuno.run(handler, key="k", kernel=kernel) == 21


@pytest.mark.parametrize(
    ("key", "told"), [("k", r"run\(\.\.\., key='k'\) goes on"), (None, "nothing resumes it")]
)
def test_an_interrupt_says_how_to_go_on(kernel: Kernel, key: str | None, told: str) -> None:
    """Below the traceback that Ctrl-C leaves behind."""

    def handler() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        rebuno.run(handler, key=key, kernel=kernel)
    [note] = caught.value.__notes__
    assert re.search(told, note)


def test_only_an_old_failure_is_called_old(kernel: Kernel) -> None:
    """Whoever ran the handler, or was there as the execution ended, is not told that it was not."""

    def handler() -> None:
        raise ValueError("no")

    notes = []
    for _ in range(2):
        with pytest.raises(rebuno.ExecutionFailed) as caught:
            rebuno.run(handler, key="k", kernel=kernel)
        notes.append(getattr(caught.value, "__notes__", []))
    assert notes == [[], ["This failure was recorded earlier; the handler was not run now."]]


# -- keys and inputs


@pytest.mark.parametrize("value", ["ada", ["ada"], 3])
def test_an_input_that_would_be_dropped_is_refused(kernel: Kernel, value: object) -> None:
    """A handler with defaults would run without it."""

    def handler(name: str = "nobody") -> str:
        return name

    with pytest.raises(ValidationError, match=r"takes an object with its parameters by name"):
        rebuno.run(handler, value, kernel=kernel)
    assert kernel.list().executions == []


def echo(n: Any = None) -> Any:
    return n


def test_without_a_key_each_call_is_an_execution_of_its_own(kernel: Kernel) -> None:
    """A key names an execution within its agent."""

    def handler(n: int) -> str:
        return rebuno.execution().id

    calls = [
        *({}, {}, {"key": "a"}, {"key": "b"}, {"key": "a", "agent": "another"}),
    ]
    ids = [rebuno.run(handler, {"n": 1}, kernel=kernel, **call) for call in calls]  # type: ignore[arg-type]
    assert len(set(ids)) == 5
    assert rebuno.run(handler, {"n": 1}, key="a", kernel=kernel) == ids[2]


def test_a_key_that_was_used_with_another_input_is_a_conflict(kernel: Kernel) -> None:
    """Also when that execution has ended; the order of keys in an input is no difference."""

    def handler(a: int, b: int) -> int:
        return a + b

    assert rebuno.run(handler, {"a": 1, "b": 2}, key="k", kernel=kernel) == 3
    assert rebuno.run(handler, {"b": 2, "a": 1}, key="k", kernel=kernel) == 3
    with pytest.raises(ConflictError, match=r"'k'.* was used with another input") as caught:
        rebuno.run(handler, {"a": 1, "b": 3}, key="k", kernel=kernel)
    assert kernel.list().executions[0].id in str(caught.value)
    assert len(kernel.list().executions) == 1


def test_a_conflicting_call_does_not_disturb_an_execution_that_may_go_on(kernel: Kernel) -> None:
    """The interrupted execution of that key can be resumed right after it."""
    attempts: list[int] = []

    def handler(n: int) -> int:
        attempts.append(n)
        if len(attempts) == 1:
            raise KeyboardInterrupt
        return n

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler, {"n": 1}, key="k", kernel=kernel)
    with pytest.raises(ConflictError):
        rebuno.run(handler, {"n": 2}, key="k", kernel=kernel)
    assert rebuno.run(handler, {"n": 1}, key="k", kernel=kernel, timeout=5) == 1
    assert attempts == [1, 1]


@pytest.mark.parametrize(
    ("input", "error"),
    [
        ({"n": "three"}, ValidationError),
        ({}, ValidationError),
        ([1], ValidationError),
        ({"n": threading.Lock()}, TypeError),
        ({"n": float("nan")}, TypeError),
    ],
)
def test_a_bad_input_is_refused_before_anything_is_created(
    kernel: Kernel, input: object, error: type[Exception]
) -> None:
    """The caller's mistake costs no execution, and no key."""

    def handler(n: int) -> int:
        return n

    with pytest.raises(error) as caught:
        rebuno.run(handler, input, key="k", kernel=kernel)
    assert "n" in str(caught.value)
    assert kernel.list().executions == []
    assert rebuno.run(handler, {"n": 1}, key="k", kernel=kernel) == 1


@pytest.mark.parametrize("key", ["", " ", "x" * 257, "nul\0"])
def test_a_bad_key_is_refused(kernel: Kernel, key: str) -> None:
    """The message gives the rule."""
    with pytest.raises(ValidationError, match="1 to 256 bytes"):
        rebuno.run(echo, key=key, kernel=kernel)
    assert kernel.list().executions == []


def test_an_input_that_annotations_describe_is_passed_as_such(kernel: Kernel) -> None:
    """A date goes in as a date and arrives as one."""

    def handler(day: dt.date, words: set[str]) -> list[object]:
        return [type(day).__name__, sorted(words)]

    input = {"day": dt.date(2026, 1, 2), "words": {"b", "a"}}
    handler.__annotations__.update(day=dt.date, words=set[str])
    assert rebuno.run(handler, input, kernel=kernel) == ["date", ["a", "b"]]


# -- a run in a run


def test_a_run_inside_a_handler_is_an_execution_of_its_own(kernel: Kernel) -> None:
    """With a key it is resumed like any other; the outer one records nothing of it."""
    bodies: list[str] = []

    def inner(n: int) -> int:
        bodies.append("inner")
        return rebuno.step("n", lambda: n)

    def outer() -> int:
        bodies.append("outer")
        value = rebuno.run(inner, {"n": 4}, key="inner", kernel=kernel)
        if bodies.count("outer") == 1:
            raise KeyboardInterrupt
        return value

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(outer, key="outer", kernel=kernel)
    assert rebuno.run(outer, key="outer", kernel=kernel) == 4
    assert bodies == ["outer", "inner", "outer"]
    assert len(kernel.list().executions) == 2


@pytest.mark.parametrize("deep", [False, True])
def test_a_run_with_the_key_that_it_is_in_raises_instead_of_waiting_for_itself(
    kernel: Kernel, deep: bool
) -> None:
    """At any depth, and in a carried thread."""
    caught: list[ConflictError] = []

    def again() -> None:
        with pytest.raises(ConflictError, match="inside the execution that has this key") as error:
            rebuno.run(handler, key="k", kernel=kernel)
        caught.append(error.value)

    def between() -> None:
        with background(rebuno.carry(again)) as thread:
            pass
        thread.result()

    def handler() -> None:
        rebuno.run(between, key="between", kernel=kernel) if deep else again()

    rebuno.run(handler, key="k", kernel=kernel)
    assert len(caught) == 1
    assert "Use another key" in str(caught[0])


# -- the agent


@pytest.mark.parametrize("handler", [lambda: 1, functools.partial(echo, 1)])
def test_a_handler_without_a_name_needs_an_agent(
    kernel: Kernel, handler: Callable[..., Any]
) -> None:
    """The error says how to give one."""
    with pytest.raises(TypeError, match=r"run\(\) agent='...'"):
        rebuno.run(handler, kernel=kernel)
    assert rebuno.run(handler, kernel=kernel, agent="named") == 1
    assert kernel.list(agent_id="named").executions


def test_the_agent_is_the_module_and_qualified_name_of_the_handler(kernel: Kernel) -> None:
    """A method's class is part of it."""

    class Holder:
        def handler(self) -> str:
            return rebuno.execution().agent_id

    assert rebuno.run(echo, kernel=kernel) is None
    assert kernel.list().executions[0].agent_id == f"{__name__}.echo"
    assert rebuno.run(Holder().handler, kernel=kernel).endswith("<locals>.Holder.handler")


def test_the_agent_is_the_same_however_the_file_is_started(tmp_path: Path) -> None:
    """``python file.py``, ``python -m file``, an import, and multiprocessing's spawn agree."""
    shutil.copy(PROGRAMS / "named.py", tmp_path)
    roots = [str(Path(rebuno.__file__).parent.parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(roots)}
    imported = "import json, named; print(json.dumps([named.once('three.db')]))"
    said = []
    for arguments in (["named.py", "one.db"], ["-m", "named", "two.db"], ["-c", imported]):
        done = subprocess.run(
            [sys.executable, "-W", "error", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        said += json.loads(done.stdout)
    assert said == [["named.handler", "named.Holder.method"]] * 5


# -- the default kernel


@pytest.mark.parametrize(("named", "file"), [(True, "named.db"), (False, ".rebuno/kernel.db")])
def test_the_default_kernels_absolute_path_is_logged_once(
    tmp_path: Path, named: bool, file: str
) -> None:
    """``REBUNO_DB`` names it; three runs, one line in the log."""
    script = ChildScript(PROGRAMS / "default_kernel.py", tmp_path)
    before = os.environ.pop("REBUNO_DB", None)
    try:
        said = script.run(named=named, folder=tmp_path)
    finally:
        if before is not None:
            os.environ["REBUNO_DB"] = before
    assert said == [f"executions are recorded in {tmp_path / file}"]
    assert (tmp_path / file).exists()


def test_a_file_that_cannot_be_used_is_one_clear_error(tmp_path: Path) -> None:
    """It is left as it was."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database" * 1000)
    with pytest.raises(StorageError, match=r"notes\.txt"):
        Kernel(path)
    assert path.read_text() == "not a database" * 1000


# -- many


@pytest.mark.slow
def test_c29_the_process_does_not_grow_with_the_number_of_executions(tmp_path: Path) -> None:
    """Whichever way each ends, and while one goes on around them: 5 MB for 10,000 are 500 bytes for
    each (the pages that SQLite caches, of a fixed number, do not count)."""
    script = ChildScript(PROGRAMS / "many.py", tmp_path)
    assert script.run(db=tmp_path / "kernel.db", warm=200, count=400, seconds=120) < 500
