"""What a handler's signature says about its input."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_origin

from pydantic import BaseModel

__all__ = ["Shape", "model_of", "name_of", "refuse_unsuitable", "shape_of", "signature_of"]

Shape = Literal["model", "raw", "kwargs"]


def refuse_unsuitable(handler: Callable[..., object]) -> None:
    """Raises ``TypeError`` for what cannot be called for its result."""
    called: Any = handler if inspect.isroutine(handler) else type(handler).__call__
    for fn in (handler, called):
        if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
            raise TypeError(f"{name_of(handler)} is async; a handler is an ordinary function (def)")
        if inspect.isgeneratorfunction(fn):
            raise TypeError(f"{name_of(handler)} is a generator; a handler returns its output")


def signature_of(handler: Callable[..., object]) -> inspect.Signature:
    """The signature without what is bound already, ``self`` for one."""
    try:
        return inspect.signature(handler)
    except ValueError:
        message = f"{name_of(handler)} has no signature that Python can tell; wrap it in a function"
        raise TypeError(message) from None


def shape_of(parameters: list[inspect.Parameter], hints: dict[str, Any]) -> Shape:
    """The rule of protocol.md 13.6."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if len(parameters) == 1 and parameters[0].kind not in variadic:
        [hint] = hints.values()
        if model_of(hint):
            return "model"
        if hint is inspect.Parameter.empty or hint is Any or _bare(hint) is dict:
            return "raw"
    return "kwargs"


def _bare(hint: Any) -> Any:
    """The type without what ``Annotated`` adds; ``typing.Dict`` is ``dict``."""
    if get_origin(hint) is Annotated:
        hint = hint.__origin__
    return dict if hint is typing.Dict else hint  # noqa: UP006  the old name itself


def model_of(hint: Any) -> type[BaseModel] | None:
    """The pydantic model that an annotation is, if it is one."""
    hint = _bare(hint)
    return hint if inspect.isclass(hint) and issubclass(hint, BaseModel) else None


def name_of(handler: object) -> str:
    """What a message calls a handler."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return str(getattr(handler, "__qualname__", type(handler).__qualname__))
