"""What is recorded is what comes back, over HTTP as in process, under the same identities."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.samples import EXCEPTIONS, REFUSED, TYPED, seen
from support.services import Service

import rebuno_sync as rebuno
from rebuno_sync import ToolError
from rebuno_sync.codec import MOST_BYTES
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Step


@pytest.fixture(params=[True, False], ids=["extensions", "plain"])
def over(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    """Without extensions a lease is not given back, so it is short."""
    with Service(tmp_path, extensions=request.param, lease_timeout=1.0) as service:
        yield service


def dies_once(effects: list[Callable[[], Any]]) -> tuple[Callable[[], None], list[list[Any]]]:
    """A handler that performs effects, is interrupted, and performs them again; what each attempt
    got of them, exceptions included."""
    got: list[list[Any]] = []

    def handler() -> None:
        mine: list[Any] = []
        for effect in effects:
            try:
                mine.append(effect())
            except Exception as error:
                mine.append(error)
        got.append(mine)
        if len(got) == 1:
            raise rebuno.Interrupted("on purpose")

    return handler, got


def over_http(service: Service, effects: list[Callable[[], Any]]) -> list[list[Any]]:
    handler, got = dies_once(effects)
    service.agent(handler)
    service.run()
    return got


def steps_of(kernel: Kernel) -> list[Step]:
    return kernel.list_steps(kernel.list(limit=1).executions[0].id)


def identities(steps: list[Step]) -> set[tuple[str, str, str, int]]:
    return {(step.kind, step.target, step.args_hash, step.occurrence) for step in steps}


def effects_of(annotation: object, value: object, name: str) -> list[Callable[[], Any]]:
    """A tool that returns the value, a step that does, and a tool that takes it."""

    def give() -> Any:
        return value

    def take(value: Any) -> bool:
        return bool(value == expected)

    expected = value
    give.__annotations__["return"] = annotation
    take.__annotations__["value"] = annotation
    giving, taking = rebuno.tool(f"give {name}")(give), rebuno.tool(f"take {name}")(take)
    return [giving, lambda: rebuno.step(f"step {name}", give), lambda: taking(value)]


def test_c12_values_are_type_exact_live_and_replayed_over_http_and_in_process(
    over: Service, tmp_path: Path
) -> None:
    """Every annotated type, from tools and steps and as arguments; the steps of both roads are the
    same."""
    effects: list[Callable[[], Any]] = []
    for number, (annotation, value) in enumerate(TYPED):
        effects += effects_of(annotation, value, str(number))
    expected = [it for _, value in TYPED for it in (value, value, True)]
    for got in over_http(over, effects):
        assert got == expected
        assert [type(item) for item in got] == [type(item) for item in expected]
    served = steps_of(over.kernel)
    assert len(served) == len(effects)
    handler, in_process = dies_once(effects)
    with Kernel(tmp_path / "here.db") as kernel:
        for _ in range(2):
            rebuno.run(handler, key="k", kernel=kernel)
        assert in_process == [expected, expected]
        assert identities(steps_of(kernel)) == identities(served)


def test_c12_what_is_not_json_is_refused_by_its_path_before_the_body(service: Service) -> None:
    """Without an annotation; the execution goes on and nothing is recorded."""
    bodies = []

    @rebuno.tool
    def take(value):  # type: ignore[no-untyped-def]
        bodies.append(value)

    values = [value for value, _ in REFUSED]
    for got in over_http(service, [lambda value=value: take(value) for value in values]):  # type: ignore[misc]
        for error, (_, words) in zip(got, REFUSED, strict=True):
            assert isinstance(error, TypeError)
            assert str(error).startswith(words)
    assert bodies == []
    assert steps_of(service.kernel) == []


def test_c13_a_result_that_cannot_be_stored_is_a_failed_step_over_http(over: Service) -> None:
    """The side effect is not repeated, and the execution does not stay running."""
    charges = []

    @rebuno.tool
    def charge():  # type: ignore[no-untyped-def]
        charges.append(1)
        return {"receipt": threading.Lock()}

    for [error] in over_http(over, [charge]):
        assert isinstance(error, ToolError)
        words = "ran, value not storable: result.receipt: lock is not JSON"
        assert error.message.startswith(words)
    assert charges == [1]
    [step] = steps_of(over.kernel)
    assert (step.status, "lock" in step.error["repr"]) == ("failed", True)
    assert over.kernel.get(step.execution_id).status == "completed"


def test_c14_live_and_replayed_raise_the_same_thing_over_http(over: Service) -> None:
    """Type, text and cause; every failed step can be read."""

    def raising(number: int) -> Callable[[], Any]:
        original = EXCEPTIONS[number]()

        def body() -> None:
            raise original

        return rebuno.tool(f"raise {number}")(body)

    live, replayed = over_http(over, [raising(number) for number in range(len(EXCEPTIONS))])
    for number, (first, second) in enumerate(zip(live, replayed, strict=True)):
        assert seen(first) == seen(second)
        assert first.error_type.endswith(type(EXCEPTIONS[number]()).__qualname__)
    steps = steps_of(over.kernel)
    assert [step.status for step in steps] == ["failed"] * len(EXCEPTIONS)


# -- C16

ROADS = ["in process", "http"]


@pytest.fixture(params=ROADS)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Runs a handler twice under one key, or interrupted and delivered again; and its kernel."""
    if request.param == "in process":
        with Kernel(tmp_path / "here.db") as kernel:

            def run(effects: list[Callable[[], Any]]) -> list[list[Any]]:
                handler, got = dies_once(effects)
                for _ in range(2):
                    rebuno.run(handler, key="k", agent="served", kernel=kernel)
                return got

            yield run, kernel
    else:
        with Service(tmp_path) as service:
            yield lambda effects: over_http(service, effects), service.kernel


def test_c16_a_result_of_3_mb_is_stored(both: Any) -> None:
    run, _ = both
    text = "ä€" * 600_000  # Five bytes for two characters.

    @rebuno.tool
    def large() -> str:
        return text

    assert run([large]) == [[text], [text]]


def test_c16_a_result_of_40_mb_is_one_failed_step_that_tells_its_size(both: Any) -> None:
    """The body is not run again, and nothing of that size is sent."""
    run, kernel = both
    bodies = []

    @rebuno.tool
    def huge() -> str:
        bodies.append(1)
        return "x" * 40_000_000

    for [error] in run([huge]):
        assert isinstance(error, ToolError)
        assert error.message.startswith(
            "ran, value not storable: result: 40,000,002 bytes of JSON; at most 10,000,000"
        )
    assert bodies == [1]
    [step] = steps_of(kernel)
    assert step.status == "failed"


def test_c16_an_argument_of_40_mb_is_refused_before_the_body(both: Any) -> None:
    run, kernel = both
    bodies = []

    @rebuno.tool
    def take(text: str) -> None:
        bodies.append(1)

    for [error] in run([lambda: take("x" * 40_000_000)]):
        assert isinstance(error, TypeError)
        assert str(error).startswith("args: 40,000,011 bytes of JSON; at most 10,000,000")
    assert bodies == []
    assert steps_of(kernel) == []


def test_c16_an_input_of_50_mb_is_refused_at_once(service: Service) -> None:
    """By every way to create an execution, with its size; nothing is created."""
    large = {"text": "x" * 50_000_000}
    words = "input: 50,000,011 bytes of JSON; at most 10,000,000"

    def handler(text: str) -> None: ...

    with pytest.raises(TypeError, match=words):
        rebuno.run(handler, large, kernel=service.kernel)
    service.agent(handler)
    with pytest.raises(TypeError, match=words):
        service.client.create("served", large)
    with pytest.raises(TypeError, match=words):
        service.kernel.create("served", large)
    assert service.kernel.list().executions == []


def test_c16_an_output_of_40_mb_fails_the_execution_with_its_size(both: Any) -> None:
    """Once; it is not delivered again."""
    _, kernel = both
    runs = []

    def handler() -> str:
        runs.append(1)
        return "x" * 40_000_000

    with pytest.raises(rebuno.ExecutionFailed, match="output: 40,000,002 bytes of JSON"):
        rebuno.run(handler, kernel=kernel)
    assert runs == [1]


def test_c16_what_is_at_the_limit_is_stored_on_both_roads(both: Any) -> None:
    """Argument and result of 10,000,000 bytes each pass as one request each."""
    run, _ = both
    words = "<" * ((MOST_BYTES - len('{"text":""}')) // 6)  # Six bytes each in a canonical text.

    @rebuno.tool
    def echo(text: str) -> str:
        return "x" * (MOST_BYTES - 2)

    assert run([lambda: len(echo(words))]) == [[MOST_BYTES - 2]] * 2
