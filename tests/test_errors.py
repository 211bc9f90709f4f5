"""The error tree: drawn once, picklable, each class its own message."""

from __future__ import annotations

import builtins
import inspect
import pickle
import re

import pytest

from rebuno_sync import errors
from rebuno_sync.errors import (
    APIError,
    CodeChanged,
    ConflictError,
    ExecutionCancelled,
    ExecutionFailed,
    ForbiddenError,
    Interrupted,
    NetworkError,
    NoActiveExecution,
    NotFoundError,
    PolicyError,
    RateLimited,
    RebunoError,
    Signal,
    StepTimeout,
    StorageError,
    ToolError,
    UnauthorizedError,
    ValidationError,
    api_error,
    failure_reason,
)

CLASSES: list[type[BaseException]] = [
    thing for name in errors.__all__ if inspect.isclass(thing := getattr(errors, name))
]

ARGUMENTS: dict[type[BaseException], dict[str, object]] = {
    NetworkError: {"message": "gone", "repeatable": True},
    StorageError: {"message": "closed", "final": True},
    PolicyError: {"message": "no_payments", "rule_id": "rule-7"},
    ToolError: {
        "message": "card declined",
        "tool_id": "charge_card",
        "step_id": "ab" * 32,
        "error_type": "shop.Declined",
        "traceback": "Traceback ...",
        "reason": "indeterminate",
    },
    CodeChanged: {"message": "it has changed", "execution_id": "e-1"},
    Interrupted: {"message": "stopped", "code_changed": True},
    StepTimeout: {
        "message": "timed out after 2 s",
        "tool_id": "fetch",
        "step_id": "ab" * 32,
        "error_type": "rebuno_sync.errors.StepTimeout",
        "traceback": "File ...",
        "reason": "timeout",
    },
    ExecutionFailed: {"message": "it failed", "execution_id": "e-1", "reason": "tool_error: x"},
    ExecutionCancelled: {"message": "it ended", "execution_id": "e-1", "reason": "by a person"},
}


def example(cls: type[BaseException]) -> BaseException:
    """An instance whose every attribute differs from its default."""
    if cls in ARGUMENTS:
        return cls(**ARGUMENTS[cls])
    if issubclass(cls, APIError):
        return cls(message="no", code="of_its_own", status_code=418)
    return cls("what happened")


def state(error: BaseException) -> tuple[object, ...]:
    return type(error), str(error), error.args, vars(error)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("cls", CLASSES)
def test_c15_every_error_survives_pickle_with_all_its_attributes(
    cls: type[BaseException], protocol: int
) -> None:
    error = example(cls)
    error.add_note("seen in thread 7")
    vars(error)["of_the_user"] = {"tenant": 3}
    again = pickle.loads(pickle.dumps(error, protocol))
    assert state(again) == state(error)


@pytest.mark.parametrize("cls", CLASSES)
def test_c15_an_error_without_arguments_survives_pickle(cls: type[BaseException]) -> None:
    assert state(pickle.loads(pickle.dumps(cls()))) == state(cls())


def test_c15_the_examples_set_every_attribute() -> None:
    for cls in CLASSES:
        plain, full = vars(cls()), vars(example(cls))
        left = [name for name in plain if plain[name] == full[name]]
        # A policy's denial has one code.
        assert set(left) <= ({"code", "status_code"} if cls is PolicyError else set())


@pytest.mark.parametrize("cls", CLASSES)
def test_the_docstring_is_the_message(cls: type[BaseException]) -> None:
    documented = vars(cls).get("__doc__")
    assert documented
    assert cls().args == (documented.partition("\n")[0],)


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if issubclass(cls, Signal)])
def test_a_signal_raised_again_is_a_fresh_copy(cls: type[Signal]) -> None:
    signal = cls("why")
    again = signal.again()
    assert again is not signal
    assert state(again) == state(signal)


def drawn_tree() -> dict[str, str]:
    """Child to parent, from the picture in the docstring: four columns are one level."""
    path: list[str] = []
    parents: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        if node := re.match(r"    ((?:│   |    )*)(├── |└── )?(\w+)(?:\s|$)", line):
            depth = (len(node[1]) + len(node[2] or "")) // 4
            path[depth:] = [node[3]]
            if depth:
                parents[node[3]] = path[depth - 1]
    return parents


def parent_name(cls: type) -> str:
    """The nearest public class above: private ones are not drawn."""
    return next(name for above in cls.__mro__[1:] if not (name := above.__name__).startswith("_"))


def test_the_tree_is_drawn_as_it_is() -> None:
    assert drawn_tree() == {cls.__name__: parent_name(cls) for cls in CLASSES}


def test_every_class_of_the_module_is_exported() -> None:
    defined = {
        name
        for name, thing in vars(errors).items()
        if inspect.isclass(thing) and thing.__module__ == errors.__name__
    }
    public = {name for name in defined if not name.startswith("_")}
    assert {cls.__name__ for cls in CLASSES} == public


def test_no_builtin_is_shadowed() -> None:
    assert not set(errors.__all__) & set(dir(builtins))


def test_signals_pass_an_except_exception() -> None:
    for cls in CLASSES:
        assert issubclass(cls, Exception) is not issubclass(cls, Signal)


def test_an_effect_outside_an_execution_is_also_a_runtime_error() -> None:
    assert issubclass(NoActiveExecution, RuntimeError)


@pytest.mark.parametrize(
    ("code", "status_code", "cls"),
    [
        ("not_found", 404, NotFoundError),
        ("conflict", 409, ConflictError),
        ("validation_error", 400, ValidationError),
        ("unauthorized", 401, UnauthorizedError),
        ("forbidden", 403, ForbiddenError),
        ("execution_terminal", 409, ConflictError),
        ("lease_superseded", 409, ConflictError),
        ("policy_denied", 403, PolicyError),
        ("internal_error", 500, APIError),
        ("of_a_newer_kernel", 422, APIError),
    ],
)
def test_a_kernels_code_chooses_the_class(code: str, status_code: int, cls: type[APIError]) -> None:
    error = api_error(code, "what happened", status_code)
    assert type(error) is cls
    assert (error.code, error.status_code) == (code, status_code)


@pytest.mark.parametrize(
    ("code", "status_code", "message", "told"),
    [
        ("conflict", 409, "conflict: it has ended", "conflict: it has ended"),
        ("not_found", 404, "not found: agent 'a'", "not found: agent 'a'"),
        ("not_found", 404, "agent 'a'", "not found: agent 'a'"),
        ("lease_superseded", 409, "dispatch lease superseded", "dispatch lease superseded"),
        ("validation_error", 413, "too large", "validation error: too large (HTTP 413)"),
        ("internal_error", 500, "no room", "internal error: no room"),
        ("internal_error", 404, "no page", "internal error: no page (HTTP 404)"),
        ("of_a_newer_kernel", 422, "oh", "of a newer kernel: oh (HTTP 422)"),
        ("policy_denied", 403, "approval_denied", "approval_denied"),
    ],
)
def test_an_error_says_what_happened_once(
    code: str, status_code: int, message: str, told: str
) -> None:
    """The kind of error is named once, and a status only where the kind does not say it."""
    assert str(api_error(code, message, status_code)) == told


def test_a_denial_names_its_rule() -> None:
    error = api_error("policy_denied", "no_payments", 403, rule_id="rule-7")
    assert isinstance(error, PolicyError)
    assert error.rule_id == "rule-7"


class OfTheUser(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PolicyError("no_payments"), "no_payments"),
        (PolicyError("Not on Sundays"), "policy_denied: Not on Sundays"),
        (RateLimited("rate_limit_exceeded"), "rate_limit_exceeded"),
        (ToolError("declined", tool_id="charge_card"), "tool_error: charge_card: declined"),
        (ToolError("declined"), "tool_error: declined"),
        (ConflictError("used before"), "agent_error: ConflictError: used before"),
        (RebunoError("no"), "agent_error: RebunoError: no"),
        (OfTheUser("what"), "agent_error: OfTheUser: what"),
    ],
)
def test_a_failure_is_told_as_the_protocol_says(error: BaseException, reason: str) -> None:
    assert failure_reason(error) == reason
