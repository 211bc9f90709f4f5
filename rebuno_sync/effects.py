"""Effects that a handler calls: ``tool``, ``wrap_tool``, ``step``."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from keyword import iskeyword
from typing import Any, ParamSpec, TypeVar, cast, overload

from pydantic import BaseModel

from .codec import (
    PLAIN,
    arguments_codec,
    encode_named_arguments,
    encode_plain_arguments,
    return_codec,
)
from .context import current
from .errors import PolicyError
from .retrying import Bounds, RetryPolicy, bounds_of
from .turns import mark_call
from .types import Idempotency, Proposal, StepKind, check_idempotency

__all__ = ["step", "tool", "wrap_tool"]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def tool(fn: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def tool(
    tool_id: str | None = None,
    /,
    *,
    idempotency: str = Idempotency.SAFE_TO_RETRY,
    timeout: float | None = None,
    retries: int | RetryPolicy = 0,
    resources: Sequence[str] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def tool(
    tool_id: Callable[P, R] | str | None = None,
    /,
    *,
    idempotency: str = Idempotency.SAFE_TO_RETRY,
    timeout: float | None = None,
    retries: int | RetryPolicy = 0,
    resources: Sequence[str] = (),
) -> Any:
    """Make a function an effect: each call is recorded before its body runs, and replayed later.

    ``tool_id``: its name in the kernel and in policies; the function's name unless given.
    ``idempotency``: ``"safe_to_retry"`` runs the body again when it was cut down;
    ``"at_most_once"`` never does, the call then raises ``ToolError`` with reason
    ``indeterminate``.
    ``timeout``: seconds that the body may run, in a thread of its own; the call then raises
    ``StepTimeout``, and whatever the body still does is not recorded.
    ``retries``: how many further tries follow a failed one, or a ``RetryPolicy``; with
    ``"at_most_once"`` only one that names exceptions that prove that nothing happened.
    ``resources``: the keys of the resources that it changes (`resource`).

    The call's identity is its bound arguments by parameter name, defaults applied, without
    ``self`` or ``cls`` (protocol.md 13.8); they are encoded by their annotations, and the result
    by the return annotation. A call raises ``TypeError`` naming the path when an argument cannot
    be encoded, before anything is submitted; ``ToolError`` when the body failed;
    ``NoActiveExecution`` outside an execution. A call that policy denies returns a text that says
    so, for the model to read.
    """
    check_idempotency(idempotency)
    keys = _keys(resources)

    def make(fn: Callable[P, R], name: str, bound_receiver: bool) -> Callable[P, R]:
        bounds = bounds_of(f"tool {name!r}", timeout, retries, idempotency)
        return _make_tool(fn, name, idempotency, bounds, bound_receiver, keys)

    if tool_id is not None and not isinstance(tool_id, str):
        return _decorated(tool_id, None, make)
    return lambda fn: _decorated(fn, tool_id, make)


def _keys(resources: Sequence[str]) -> tuple[str, ...]:
    if isinstance(resources, str):
        raise TypeError(f"resources must be a list of keys, [{resources!r}], not one text")
    return tuple(resources)


def _decorated(fn: Any, name: str | None, make: Callable[[Any, str, bool], Any]) -> Any:
    if isinstance(fn, (classmethod, staticmethod)):
        inner = fn.__func__
        receiver = isinstance(fn, classmethod)
        return type(fn)(make(inner, name or _name_of(inner), receiver))
    if not callable(fn):
        raise TypeError(f"a tool is a function, not {fn!r}; write @tool or @tool('name')")
    return make(fn, name or _name_of(fn), _is_method(fn))


def _make_tool(
    fn: Callable[P, R],
    name: str,
    idempotency: str,
    bounds: Bounds,
    bound_receiver: bool,
    keys: tuple[str, ...],
) -> Callable[P, R]:
    _check_body(fn, f"tool {name!r}")
    arguments = arguments_codec(fn, bound_receiver=bound_receiver)
    result = return_codec(fn)
    run = _with_fresh_defaults(fn)

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        context = current(f"tool {name!r}")
        try:
            text = arguments.encode(args, kwargs)
        except TypeError as error:
            error.add_note(f"in a call of the tool {name!r}; nothing was recorded")
            raise
        proposal = Proposal(
            StepKind.TOOL_CALL, name, text, idempotency, canonical=True, resources=keys
        )
        try:
            body = functools.partial(_on_copies, run, args, kwargs)
            return cast(R, context.perform(proposal, body, result, bounds))
        except PolicyError as refusal:
            return cast(R, _denial(name, refusal))

    mark_call(
        call, lambda args, kwargs: (StepKind.TOOL_CALL, name, arguments.encode(args, dict(kwargs)))
    )
    return call


_CHANGEABLE = (list, dict, set, tuple, bytearray, BaseModel)


def _on_copies(fn: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
    """Call a body with copies of what it could change.

    A replay does not run the body, so what it changed in its caller's objects would be missing
    there, and with it the identity of every call that they are arguments of.
    """
    return fn(*map(_copied, args), **{name: _copied(value) for name, value in kwargs.items()})


def _with_fresh_defaults(fn: Callable[..., R]) -> Callable[..., R]:
    """``fn``, its changeable default values given as arguments: they are copied like those."""
    signature = inspect.signature(fn)
    parameters = signature.parameters.values()
    if not any(_is_changeable(parameter.default) for parameter in parameters):
        return fn

    def call(*args: Any, **kwargs: Any) -> R:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return _on_copies(fn, bound.args, bound.kwargs)

    return call


def _is_changeable(value: Any) -> bool:
    if isinstance(value, type):
        return False
    return isinstance(value, _CHANGEABLE) or is_dataclass(value)


def _copied(value: Any) -> Any:
    return copy.deepcopy(value) if _is_changeable(value) else value


def _denial(name: str, refusal: PolicyError) -> str:
    """What a model is told of a tool that policy denied, word for word as other SDKs tell it: their
    next model call is the same step (protocol.md 13.8)."""
    reason = f"[{refusal.code}] {refusal.message} (HTTP {refusal.status_code})"
    return f"{name} not allowed. reason: {reason}"


def _name_of(fn: Callable[..., object]) -> str:
    name = getattr(fn, "__name__", None)
    if not isinstance(name, str):
        raise TypeError(f"{fn!r} has no name of its own; give the tool one: @tool('name')")
    return name


def _is_method(fn: Callable[..., object]) -> bool:
    """Whether the first parameter is the receiver of a function defined in a class."""
    scope, _, _ = getattr(fn, "__qualname__", "").rpartition(".")
    if not scope or scope.endswith("<locals>"):
        return False
    first = next(iter(inspect.signature(fn).parameters), "")
    return first in ("self", "cls")


def _check_body(fn: Callable[..., object], what: str) -> None:
    while isinstance(fn, functools.partial):
        fn = fn.func
    called = fn if inspect.isclass(fn) else getattr(fn, "__call__", fn)  # noqa: B004 - may be async
    for candidate in (fn, called):
        if inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate):
            raise TypeError(
                f"{what} is an async function; rebuno_sync runs blocking code. Write it as a"
                " plain function (asyncio.run(...) inside it if need be)."
            )
        if inspect.isgeneratorfunction(candidate):
            raise TypeError(
                f"{what} is a generator; its values would not be recorded. Return a list."
            )


def step(
    name: str,
    fn: Callable[..., R],
    args: dict[str, Any] | None = None,
    idempotency: str = Idempotency.SAFE_TO_RETRY,
    *,
    timeout: float | None = None,
    retries: int | RetryPolicy = 0,
    resources: Sequence[str] = (),
) -> R:
    """Record the result of ``fn(**args)``: local non-determinism, such as the time or a file's
    text.

    ``args`` identify the step together with ``name`` and are encoded by ``fn``'s annotations; the
    result by its return annotation. ``timeout``, ``retries`` and ``resources``: as of ``tool``.
    Raises as ``tool`` does, and ``PolicyError`` when policy denies it (protocol.md 13.8).
    """
    check_idempotency(idempotency)
    bounds = bounds_of(f"step {name!r}", timeout, retries, idempotency)
    keys = _keys(resources)
    context = current(f"step {name!r}")
    _check_body(fn, f"step {name!r}")
    given = args or {}
    if not isinstance(given, dict):
        raise TypeError(
            f"step {name!r}: args must be a dict of {name!r}'s arguments by name, not {given!r}"
        )
    text = encode_named_arguments(fn, given) if given else encode_plain_arguments(given)
    proposal = Proposal(StepKind.LOCAL, name, text, idempotency, canonical=True, resources=keys)
    body = functools.partial(_on_copies, fn, (), given)
    return cast(R, context.perform(proposal, body, return_codec(fn), bounds))


def wrap_tool(
    name: str,
    invoke: Callable[[dict[str, Any]], Any],
    description: str = "",
    args_schema: dict[str, Any] | None = None,
    idempotency: str = Idempotency.SAFE_TO_RETRY,
    timeout: float | None = None,
    retries: int | RetryPolicy = 0,
    to_result: Callable[[Any], Any] | None = None,
    transform_args: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    resources: Sequence[str] = (),
) -> Callable[..., Any]:
    """Make an effect of a tool that some other library describes by a JSON Schema.

    The callable that is returned takes keyword arguments only. ``invoke`` gets them as one dict,
    after ``transform_args``; ``to_result`` turns what it returns into JSON. ``args_schema``: a
    JSON Schema of type ``object``, from which the callable's signature is made: required
    properties have no default, the others default to ``None``. ``timeout``, ``retries`` and
    ``resources``: as of ``tool``. Raises and returns as ``tool`` does (protocol.md 13.8).
    """
    check_idempotency(idempotency)
    bounds = bounds_of(f"tool {name!r}", timeout, retries, idempotency)
    _check_body(invoke, f"tool {name!r}")
    keys = _keys(resources)
    schema = args_schema or {}

    def call(**kwargs: Any) -> Any:
        context = current(f"tool {name!r}")
        arguments = transform_args(kwargs) if transform_args is not None else kwargs
        text = encode_plain_arguments(arguments)
        proposal = Proposal(
            StepKind.TOOL_CALL, name, text, idempotency, canonical=True, resources=keys
        )

        def run() -> Any:
            value = _on_copies(invoke, (arguments,), {})
            return value if to_result is None else to_result(value)

        try:
            return context.perform(proposal, run, PLAIN, bounds)
        except PolicyError as refusal:
            return _denial(name, refusal)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = description
    # ``transform_args`` is not called twice, so all calls of one that has it take turns.
    mark_call(
        call,
        lambda _, kwargs: (
            *(StepKind.TOOL_CALL, name),
            None if transform_args else encode_plain_arguments(dict(kwargs)),
        ),
    )
    described: Any = call
    described.__signature__ = _signature_of(schema)
    described.__input_schema__ = schema
    described.__idempotency__ = str(idempotency)
    return call


def _signature_of(schema: dict[str, Any]) -> inspect.Signature:
    required = set(schema.get("required") or ())
    return inspect.Signature(
        [
            inspect.Parameter(
                key,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if key in required else None,
            )
            for key in (schema.get("properties") or {})
            if key.isidentifier() and not iskeyword(key)
        ]
    )
