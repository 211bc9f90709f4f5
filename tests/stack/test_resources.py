"""``resource``: environments that steps change, found again, captured, and restored in forks."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.attempts import AGENT, attempt, created

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel
from rebuno_sync.mcp import wrap_mcp_tool


class Folders:
    """A driver whose environments are folders, and whose checkpoints are copies of them."""

    driver_id = "folders"

    def __init__(self, home: Path) -> None:
        self.home = home
        self.configuration = {"kind": "plain"}
        self.coverage_reuse = False
        self.did: list[str] = []
        self.fails = False

    def create(self, checkpoint_ref: str | None) -> tuple[Path, Any]:
        self.did.append(f"create {checkpoint_ref}")
        path = self.home / f"folder-{len(list(self.home.iterdir()))}"
        if checkpoint_ref is None:
            path.mkdir()
        elif not (self.home / checkpoint_ref).exists():
            raise rebuno.CheckpointUnavailable(checkpoint_ref)
        else:
            shutil.copytree(self.home / checkpoint_ref, path)
        return path, {"path": str(path)}

    def open(self, binding: Any) -> Path:
        self.did.append("open")
        return Path(binding["path"])

    def checkpoint(self, handle: Path) -> str:
        if self.fails:
            raise OSError("no room")
        name = f"copy-{len(list(self.home.iterdir()))}"
        shutil.copytree(handle, self.home / name)
        self.did.append(name)
        return name


class Plain:
    """A driver without checkpoints."""

    driver_id = "plain"

    def create(self, checkpoint_ref: str | None) -> tuple[str, Any]:
        return "made", 1

    def open(self, binding: Any) -> str:
        return "found"


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    home = tmp_path / "home"
    home.mkdir()
    return Folders(home)


EVERY = rebuno.CheckpointPolicy()


@rebuno.tool(resources=["work"])
def write(text: str) -> None:
    folder: Path = FOLDER[rebuno.execution().id]
    (folder / text).touch()


FOLDER: dict[str, Path] = {}


def writing(
    folders: Folders, *texts: str, policy: rebuno.CheckpointPolicy | None = EVERY
) -> Callable[[], list[str]]:
    """A handler that writes into its folder."""

    def handler() -> list[str]:
        folder = rebuno.resource("work", folders, policy)
        assert rebuno.resource("work", folders, policy) is folder
        FOLDER[rebuno.execution().id] = folder
        for text in texts:
            write(text)
        return sorted(path.name for path in folder.iterdir())

    return handler


def kinds(kernel: Kernel, execution_id: str) -> list[str]:
    events = kernel.events(execution_id, limit=1000)
    return [event.type.partition(".")[2] for event in events if event.type.startswith("resource.")]


def test_it_is_made_once_and_found_again(kernel: Kernel, folders: Folders) -> None:
    """A later attempt opens what the first one has made."""
    execution_id = created(kernel)

    def cut_down() -> None:
        writing(folders, "a", policy=None)()
        raise rebuno.Interrupted("the process dies")

    attempt(kernel, execution_id, cut_down)
    assert folders.did == ["create None"]
    second = attempt_again(kernel, execution_id, writing(folders, "a", "b", policy=None))
    assert second == ["a", "b"]
    assert folders.did == ["create None", "open"]
    assert kinds(kernel, execution_id) == ["registered", "bound"]


def attempt_again(kernel: Kernel, execution_id: str, handler: Callable[[], Any]) -> Any:
    """The next attempt, when it is due."""
    mark = kernel.change_mark()
    while (claim := kernel.claim(execution_id)) is None:
        kernel.wait_for_change(mark, 1.0, execution_id)
    kernel.agent.release(claim.lease)
    return attempt(kernel, execution_id, handler).output


def test_it_is_captured_after_each_step_that_changes_it(kernel: Kernel, folders: Folders) -> None:
    """And at first; a step that changes nothing captures nothing, the end only what is new."""

    def handler() -> None:
        writing(folders, "a", "b")()
        rebuno.step("look", lambda: None)

    rebuno.run(handler, kernel=kernel, agent=AGENT)
    assert [it for it in folders.did if it.startswith("copy")] == [
        *("copy-1", "copy-2", "copy-3", "copy-4")
    ]
    (execution,) = kernel.list().executions
    points = kernel.fork_points(execution.id)
    assert [it.generation for it in points.checkpoints] == [0, 1, 2, 3]


def test_a_fork_goes_on_from_the_captured_state(kernel: Kernel, folders: Folders) -> None:
    """In an environment of its own."""
    rebuno.run(writing(folders, "a", "b"), kernel=kernel, agent=AGENT)
    (execution,) = kernel.list().executions
    first = next(it for it in kernel.events(execution.id) if it.type == "step.succeeded")
    fork = kernel.fork(execution.id, first.event_seq + 1)
    assert fork.restoration is not None
    assert fork.restoration["work"]["covered"] is True
    outcome = attempt(kernel, fork.id, writing(folders, "a", "c"))
    assert outcome.output == ["a", "c"]
    assert (folders.home / "folder-0" / "b").exists()


@pytest.mark.parametrize("policy", [None, EVERY], ids=["not captured", "captured"])
def test_a_retry_has_what_the_failed_execution_left(
    kernel: Kernel, folders: Folders, policy: rebuno.CheckpointPolicy | None
) -> None:
    """The steps that made it replay: in the captured state, or in the environment itself."""
    failing = [False, True]

    def handler() -> list[str]:
        writing(folders, "a", "b", policy=policy)()
        if failing.pop():
            raise ValueError("half way")
        return writing(folders, policy=policy)()

    with pytest.raises(rebuno.ExecutionFailed):
        rebuno.run(handler, key="k", kernel=kernel)
    assert rebuno.run(handler, key="k", kernel=kernel, retry_failed=True) == ["a", "b"]
    restored = [it for it in folders.did if it.startswith("create copy")]
    assert restored == ([] if policy is None else ["create copy-3"])


def test_a_captured_state_that_is_gone_fails_the_handler(kernel: Kernel, folders: Folders) -> None:
    """The driver says so."""
    rebuno.run(writing(folders, "a"), kernel=kernel, agent=AGENT)
    (execution,) = kernel.list().executions
    fork = kernel.fork(execution.id, kernel.fork_points(execution.id).latest_seq)
    for path in folders.home.glob("copy-*"):
        shutil.rmtree(path)
    outcome = attempt(kernel, fork.id, writing(folders, "a"))
    assert outcome.status == "failed"
    assert "CheckpointUnavailable" in outcome.reason


def test_a_capture_that_fails_is_told_and_no_more(kernel: Kernel, folders: Folders) -> None:
    """The step keeps its result, and the execution completes."""
    folders.fails = True
    assert rebuno.run(writing(folders, "a"), kernel=kernel, agent=AGENT) == ["a"]
    (execution,) = kernel.list().executions
    failures = [it for it in kernel.events(execution.id) if it.type.endswith("checkpoint_failed")]
    assert {it.payload["error"] for it in failures} == {"OSError: no room"}
    assert kernel.list_steps(execution.id)[0].status == "succeeded"


@pytest.mark.parametrize("reference", [None, "", Path("copy"), {"id": 1}, "\ud800"])
def test_a_reference_that_is_no_text_is_no_capture(
    kernel: Kernel, folders: Folders, reference: object
) -> None:
    """A fork would be given something else than the driver returned."""
    folders.checkpoint = lambda handle: reference  # type: ignore[method-assign, assignment]
    execution_id = created(kernel)
    assert attempt(kernel, execution_id, writing(folders, "a")).status == "completed"
    assert set(kinds(kernel, execution_id)) == {"registered", "bound", "checkpoint_failed"}


def test_an_error_of_a_driver_may_say_anything(
    kernel: Kernel, folders: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    """A file's name that is no text, or nothing at all."""
    caplog.set_level(logging.CRITICAL, "rebuno_sync")  # What it says, no report can show.

    class Silent(Exception):
        def __str__(self) -> str:
            raise ValueError

    def fail(handle: Path) -> str:
        raise errors.pop()

    folders.checkpoint = fail  # type: ignore[method-assign]
    errors: list[Exception] = [Silent(), OSError("\udcff"), Silent()]
    execution_id = created(kernel)
    assert attempt(kernel, execution_id, writing(folders, "a")).status == "completed"
    assert not errors


def test_steps_run_one_after_another_once_there_is_a_resource(kernel: Kernel) -> None:
    """Before that, they run beside each other."""
    together = threading.Barrier(2)
    running: list[int] = []
    most: list[int] = []

    def body(n: int) -> int:
        if n < 2:
            together.wait(20)
        running.append(n)
        most.append(len(running))
        running.remove(n)
        return n

    one = rebuno.tool("one")(body)

    def handler() -> list[int]:
        rebuno.parallel([(one, 0), (one, 1)])
        most.clear()
        rebuno.resource("plain", Plain())
        return rebuno.parallel([(one, n) for n in (2, 3, 3, 4, 4, 5)])

    assert rebuno.run(handler, kernel=kernel) == [2, 3, 3, 4, 4, 5]
    assert set(most) == {1}


def test_what_is_called_in_a_body_belongs_to_its_step(kernel: Kernel) -> None:
    """Also from its threads: it does not wait for itself."""
    inner = rebuno.tool("inner")(lambda n: n)

    @rebuno.tool
    def outer() -> list[int]:
        return [*rebuno.parallel([(inner, 1), (inner, 2)]), inner(3)]

    def handler() -> list[int]:
        rebuno.resource("plain", Plain())
        return outer()

    assert rebuno.run(handler, kernel=kernel) == [1, 2, 3]


def touch(name: str) -> None:
    (FOLDER[rebuno.execution().id] / name).touch()


TOUCHES: dict[str, Callable[[], object]] = {
    "tool": lambda: rebuno.tool("touch", resources=["work"])(touch)("a"),
    "step": lambda: rebuno.step("touch", touch, {"name": "a"}, resources=["work"]),
    "wrap_tool": lambda: rebuno.wrap_tool(
        "touch", lambda given: touch(given["name"]), resources=["work"]
    )(name="a"),
    "wrap_mcp_tool": lambda: wrap_mcp_tool(
        {"name": "touch"}, lambda _, given: touch(given["name"]), resources=["work"]
    )(name="a"),
}


@pytest.mark.parametrize("effect", TOUCHES)
def test_every_effect_with_a_body_says_what_it_changes(
    kernel: Kernel, folders: Folders, effect: str
) -> None:
    """What names the resource is captured after it; what does not, is not."""
    folders.coverage_reuse = True

    def handler() -> None:
        FOLDER[rebuno.execution().id] = rebuno.resource("work", folders, EVERY)
        rebuno.step("look", lambda: None)
        TOUCHES[effect]()

    rebuno.run(handler, kernel=kernel)
    before, after = (folders.home / name for name in folders.did if name.startswith("copy"))
    assert [list(before.iterdir()), [path.name for path in after.iterdir()]] == [[], ["a"]]


def test_what_is_wrong_is_told(kernel: Kernel, folders: Folders) -> None:
    """A driver that cannot be captured, another one under the key, no execution."""
    told: list[type[BaseException]] = []

    def handler() -> None:
        wrong: list[Callable[[], object]] = [
            lambda: rebuno.resource("a", Plain(), EVERY),
            lambda: rebuno.resource("a b", Plain()),
            lambda: rebuno.CheckpointPolicy(every_steps=0),
            lambda: rebuno.tool(resources="work"),
            lambda: rebuno.step("touch", print, resources="work"),
            lambda: rebuno.wrap_tool("touch", print, resources="work"),
        ]
        for attempt_it in wrong:
            try:
                attempt_it()
            except Exception as error:
                told.append(type(error))

    rebuno.run(handler, kernel=kernel)
    refused = [ValueError, rebuno.ValidationError, ValueError]
    assert told == [*refused, TypeError, TypeError, TypeError]
    with pytest.raises(rebuno.NoActiveExecution):
        rebuno.resource("a", Plain())


def test_what_is_no_driver_is_told_what_it_lacks(kernel: Kernel) -> None:
    def handler() -> None:
        rebuno.resource("x", "a name")  # type: ignore[arg-type]

    with pytest.raises(rebuno.ExecutionFailed, match="has no driver_id, create, open: 'a name'"):
        rebuno.run(handler, agent="a", kernel=kernel)


def test_an_unknown_resource_is_an_error_of_the_call(kernel: Kernel) -> None:
    """A tool that changes it needs it to be there."""

    def handler() -> None:
        write("a")

    with pytest.raises(rebuno.ExecutionFailed, match='unknown resource "work"'):
        rebuno.run(handler, kernel=kernel)
