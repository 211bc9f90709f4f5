"""What is recorded is what comes back, live and replayed alike."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.children import ChildScript
from support.replays import live_and_replayed, only_step
from support.samples import EXCEPTIONS, TYPED, http_error, rate_limit_error, seen

import rebuno_sync as rebuno
from rebuno_sync import ToolError
from rebuno_sync.kernel import Kernel

PROGRAMS = Path(__file__).parent / "programs"

# -- C12: results


@pytest.mark.parametrize(("annotation", "value"), TYPED)
@pytest.mark.parametrize("sort", ["tool", "step"])
def test_c12_an_annotated_result_comes_back_type_exact_live_and_replayed(
    kernel: Kernel, annotation: object, value: object, sort: str
) -> None:
    """The handler gets a value of the annotated type that equals what the body returned."""

    def body() -> Any:
        return value

    body.__annotations__["return"] = annotation
    tool = rebuno.tool(body)
    got = live_and_replayed(kernel, tool if sort == "tool" else lambda: rebuno.step("body", body))
    assert got == (value, value)
    assert [type(item) for item in got] == [type(value)] * 2


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ((1, (2, 3)), [1, [2, 3]]),
        ({"a": (1,)}, {"a": [1]}),
        (True, True),
        (1.0, 1.0),
    ],
)
def test_c12_a_result_without_annotation_comes_back_as_plain_json_both_times(
    kernel: Kernel, value: object, plain: object
) -> None:
    """A tuple is a list on the first run as on the tenth."""

    @rebuno.tool
    def body():  # type: ignore[no-untyped-def]
        return value

    live, replayed = live_and_replayed(kernel, body)
    assert live == replayed == plain
    assert type(live) is type(replayed) is type(plain)


def test_c12_what_the_handler_gets_is_no_alias_of_what_the_body_keeps(kernel: Kernel) -> None:
    """A later change of the body's object does not show in the value that was recorded."""
    kept = [1]

    @rebuno.tool
    def body() -> list[int]:
        return kept

    def effect() -> list[int]:
        value = body()
        kept.append(2)
        return value

    assert live_and_replayed(kernel, effect) == ([1], [1])


@pytest.mark.parametrize(("annotation", "value"), TYPED)
def test_c12_an_annotated_argument_is_recorded_as_json_and_replays(
    kernel: Kernel, annotation: object, value: object
) -> None:
    """The same value gives the same step on both attempts, and the body runs once."""
    bodies = []

    def body(value: Any) -> int:
        bodies.append(value)
        return len(bodies)

    body.__annotations__["value"] = annotation
    tool = rebuno.tool(body)
    assert live_and_replayed(kernel, lambda: tool(value)) == (1, 1)
    assert bodies == [value]


# -- C13


@pytest.mark.parametrize("annotated", [True, False])
def test_c13_a_result_that_cannot_be_stored_fails_the_step_and_is_not_tried_again(
    kernel: Kernel, annotated: bool
) -> None:
    """The side effect has happened: it is recorded as failed, with the value's repr."""
    charges = []

    def charge() -> Any:
        charges.append(1)
        return threading.Lock()

    if annotated:
        charge.__annotations__["return"] = threading.Event
    else:
        del charge.__annotations__["return"]
    live, replayed = live_and_replayed(kernel, rebuno.tool(charge))
    for error in (live, replayed):
        assert isinstance(error, ToolError)
        assert error.message.startswith("ran, value not storable: result: lock is not JSON")
        assert error.tool_id == "charge"
    assert charges == [1]
    step = only_step(kernel)
    assert step.status == "failed"
    assert "lock" in step.error["repr"]
    assert kernel.get(step.execution_id).status == "completed"


def test_c13_an_execution_that_does_not_handle_it_fails_and_does_not_stay_running(
    kernel: Kernel,
) -> None:
    """The unhandled ``ToolError`` is the execution's failure."""

    @rebuno.tool
    def charge():  # type: ignore[no-untyped-def]
        return threading.Lock()

    def handler() -> None:
        charge()

    for _ in range(2):
        with pytest.raises(rebuno.ExecutionFailed, match="value not storable") as caught:
            rebuno.run(handler, key="k", kernel=kernel)
        assert caught.value.reason.startswith("tool_error: charge: ran, value not storable")


# -- C14


@pytest.mark.parametrize("make", EXCEPTIONS)
@pytest.mark.parametrize("sort", ["tool", "step"])
def test_c14_live_and_replayed_raise_the_same_thing(
    kernel: Kernel, make: Callable[[], Exception], sort: str
) -> None:
    """Type, text, ids and cause are alike; the step can be read; the message is the user's."""
    original = make()

    def body() -> None:
        raise original

    tool = rebuno.tool(body)
    live, replayed = live_and_replayed(
        kernel, tool if sort == "tool" else lambda: rebuno.step("body", body)
    )
    assert seen(live) == seen(replayed)
    step = only_step(kernel)
    assert step.status == "failed"
    assert live.step_id == step.step_id
    assert live.tool_id == "body"
    assert live.error_type == f"{type(original).__module__}.{type(original).__qualname__}"
    if len(live.message) < 1000:
        assert "in body" in live.traceback


@pytest.mark.parametrize(
    ("make", "args", "attributes"),
    [
        (EXCEPTIONS[0], ("5: x",), {"code": 5, "detail": "x"}),
        (http_error, ("503 Server Error",), {}),
        (rate_limit_error, ("slow down",), {"status_code": 429, "code": "rate"}),
        (EXCEPTIONS[3], (3, ["ls", "-l"]), {"returncode": 3, "cmd": ["ls", "-l"]}),
        (EXCEPTIONS[5], ("held",), {}),
        (EXCEPTIONS[9], (2, "No such file"), {"errno": 2, "filename": "a.txt"}),
    ],
)
def test_c14_the_cause_is_the_bodys_exception_as_far_as_json_holds_it(
    kernel: Kernel,
    make: Callable[[], Exception],
    args: tuple[object, ...],
    attributes: dict[str, object],
) -> None:
    """Its type, arguments and plain attributes are there, live as on the replay."""
    original = make()

    @rebuno.tool
    def body() -> None:
        raise original

    for error in live_and_replayed(kernel, body):
        cause = error.__cause__
        assert type(cause) is type(original)
        assert cause.args == args
        assert str(error) == f"body: {original}"
        for name, value in attributes.items():
            assert getattr(cause, name) == value


def test_c14_the_live_cause_shows_where_the_body_raised(kernel: Kernel) -> None:
    """The traceback of the first attempt leads to the line in the body."""

    @rebuno.tool
    def body() -> None:
        raise ValueError("here")

    live, _ = live_and_replayed(kernel, body)
    frames = []
    traceback = live.__cause__.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    assert frames[-1] == "body"


def test_a_recorded_traceback_begins_in_the_body(kernel: Kernel) -> None:
    """How this package calls a body is of no interest to whoever looks for a mistake in it."""

    def inner() -> None:
        raise ValueError("here")

    @rebuno.tool
    def body() -> None:
        inner()

    live, _ = live_and_replayed(kernel, body)
    calls = [line for line in live.traceback.splitlines() if line.startswith('  File "')]
    assert [line.rpartition(" ")[2] for line in calls] == ["body", "inner"]


@pytest.mark.parametrize("make", EXCEPTIONS)
def test_c14_a_handlers_own_exception_fails_its_execution(
    kernel: Kernel, make: Callable[[], Exception]
) -> None:
    """Whatever it is, it becomes a failure with a reason that names it, again for the same key."""
    original = make()

    def handler() -> None:
        raise original

    reasons = []
    for _ in range(2):
        with pytest.raises(rebuno.ExecutionFailed) as caught:
            rebuno.run(handler, key="k", kernel=kernel)
        reasons.append(caught.value.reason)
        if len(reasons) == 1:
            assert caught.value.__cause__ is original
    assert reasons[0] == reasons[1]
    assert type(original).__name__ in reasons[0] or isinstance(original, ToolError)


# -- C34


def test_c34_sets_and_floats_give_the_same_step_in_every_process(tmp_path: Path) -> None:
    """A resume under another ``PYTHONHASHSEED`` meets the steps that were recorded; a float is the
    same argument through every encoder."""
    script = ChildScript(PROGRAMS / "step_ids.py", tmp_path)
    said = []
    before = os.environ.get("PYTHONHASHSEED")
    try:
        for seed in ("0", "1", "4711"):
            os.environ["PYTHONHASHSEED"] = seed
            said.append(script.run(db=tmp_path / f"{seed}.db"))
    finally:
        if before is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = before
    assert said[0] == said[1] == said[2]
    # Three encoders for one number: three places of one call.
    places: dict[str, list[int]] = {}
    for target, args_hash, occurrence in said[0]:
        if target == "number":
            places.setdefault(args_hash, []).append(occurrence)
    assert len(places) == 7
    assert all(found == [0, 1, 2] for found in places.values())
