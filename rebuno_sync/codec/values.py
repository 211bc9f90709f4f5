"""One value <-> JSON text, by its annotation."""

from __future__ import annotations

import inspect
import json
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, Protocol, Union, get_args, get_origin

from .. import strict
from ..canonical import canonicalize
from .schemas import Adapter, Unsupported, adapter_for
from .sizes import within_limit
from .strays import by_own_type, placed

__all__ = ["PLAIN", "Codec", "codec_for"]


class Codec(Protocol):
    """Writes and reads the values of one annotation.

    ``decode(encode(value))`` equals ``value`` and has its types, for every value of the
    annotation. One that is of another type is written by its own type, and read back as JSON.
    """

    @property
    def as_it_is(self) -> bool:
        """Whether a value that is strict JSON is written without any change."""

    def encode(self, value: object, path: str) -> str:
        """Compact JSON text, keys in their own order.

        Raises ``TypeError`` that names the place under ``path``, and the next step; also for more
        than 10,000,000 bytes.
        """

    def plain(self, value: object, path: str) -> object:
        """What `encode` writes, as strict JSON values. Raises as `encode` does."""

    def decode(self, text: str) -> Any:
        """The value of ``text``; plain JSON where ``text`` does not fit the annotation."""


class _Plain:
    """No annotation: strict JSON, read back as JSON (a tuple comes back as a list)."""

    as_it_is = True

    def __init__(self, why: str = "") -> None:
        self._why = why

    def encode(self, value: object, path: str) -> str:
        try:
            text = strict.compact(value, path)
        except strict.NotJSON as error:
            raise self._explained(error) from None
        return within_limit(text, path)

    def plain(self, value: object, path: str) -> object:
        try:
            return strict.plain(value, path)
        except strict.NotJSON as error:
            raise self._explained(error) from None

    def decode(self, text: str) -> Any:
        return _loads(text)

    def _explained(self, error: strict.NotJSON) -> strict.NotJSON:
        if self._why:
            error.problem = error.problem.replace(strict.ANNOTATE, self._why)
        return error


class _Typed:
    """An annotation that pydantic writes and reads."""

    as_it_is = False

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter

    def encode(self, value: object, path: str) -> str:
        return within_limit(strict.compact(self.plain(value, path), path), path)

    def plain(self, value: object, path: str) -> object:
        try:
            return self._adapter.to_json_value(value, strictly=True)
        except Exception as error:  # a user's serializer may raise anything
            refusal = placed(error, value, path)
        if refusal is None:
            return by_own_type(value, path)
        raise refusal

    def decode(self, text: str) -> Any:
        # Strictly first: leniently, a text "5" that was returned where an int is annotated would
        # come back as a number, and a number under a datetime as a day in 1970.
        validate = self._adapter.validator.validate_json
        try:
            return validate(text, strict=True)
        except Exception:  # a user's validator may raise anything
            try:
                value = validate(text)
                if canonicalize(self.encode(value, "")) == canonicalize(text):
                    return value
            except Exception:
                pass
        return _loads(text)


class _JSONShaped:
    """An annotation such as ``list[str]``, whose values are strict JSON already."""

    as_it_is = True

    def __init__(self, typed: _Typed, reads_floats: bool) -> None:
        self._typed = typed
        # Only a float reads back as something else than its text says: ``3`` as ``3.0``.
        self._read = typed.decode if reads_floats else _loads

    def encode(self, value: object, path: str) -> str:
        try:
            text = strict.compact(value, path)
        except strict.NotJSON:
            return self._typed.encode(value, path)
        return within_limit(text, path)

    def plain(self, value: object, path: str) -> object:
        try:
            return strict.plain(value, path)
        except strict.NotJSON:
            return self._typed.plain(value, path)

    def decode(self, text: str) -> Any:
        return self._read(text)


PLAIN: Codec = _Plain()
"""The codec of what has no annotation, and of ``Any``."""


def codec_for(annotation: object) -> Codec:
    """The codec of a type annotation, made once for each.

    Annotations for which pydantic has no schema (an unresolvable name, a lock) are as good as none.
    """
    try:
        return _cached(annotation)
    except TypeError:  # not hashable: Annotated with a list, say
        return _made(annotation)


def _made(annotation: object) -> Codec:
    if annotation is Any or annotation is object or annotation is inspect.Parameter.empty:
        return PLAIN
    if isinstance(annotation, str):
        hint = "define that type at the module's top level"
        return _Plain(f"its annotation {annotation!r} cannot be resolved; {hint}")
    try:
        typed = _Typed(adapter_for(annotation))
    except Unsupported as error:
        return _Plain(str(error))
    if _is_json_shaped(annotation):
        return _JSONShaped(typed, _has_float(annotation))
    return typed


_cached = lru_cache(maxsize=2048)(_made)


def _is_json_shaped(annotation: object) -> bool:
    if annotation in (str, int, float, bool, None, NoneType, list, dict, Any, object):
        return True
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is list:
        return all(map(_is_json_shaped, arguments))
    if origin is dict:
        return not arguments or (arguments[0] is str and _is_json_shaped(arguments[1]))
    if origin is Union or origin is UnionType:
        return all(map(_is_json_shaped, arguments))
    if origin is Literal:
        return all(type(argument) in (str, int, bool, NoneType) for argument in arguments)
    return False


def _has_float(annotation: object) -> bool:
    return annotation is float or any(map(_has_float, get_args(annotation)))


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        problem = f"the recorded JSON is nested deeper than {strict.MAX_DEPTH} levels"
        raise ValueError(problem) from None
