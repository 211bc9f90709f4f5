"""Values that do not fit their annotation, and where in a value something sits.

A result that is not what was annotated is no reason to fail an effect that has already happened:
it is written by its own type instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Set
from functools import lru_cache
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from .. import strict
from ..canonical import canonical_dumps
from .schemas import adapter_for, check_key

__all__ = ["by_own_type", "placed"]

_READ_ONCE = "convert it first, to a list say: an iterator can be read only once"
_DECODED = "annotate it with its type, or decode it: as text it would be base64"
_HINTS: dict[type, str] = {bytes: _DECODED, bytearray: _DECODED, memoryview: _DECODED}

_adapter_of_class = lru_cache(maxsize=512)(adapter_for)


def by_own_type(value: object, path: str) -> object:
    """``value`` as JSON's types, by what it is. Raises `strict.NotJSON` naming ``path``."""
    try:
        return _written(value, path, strict.MAX_DEPTH)
    except RecursionError:
        problem = f"nested deeper than {strict.MAX_DEPTH} levels"
        raise strict.NotJSON(problem, value, path) from None


def placed(error: BaseException | None, value: object, path: str) -> strict.NotJSON | None:
    """The `strict.NotJSON` behind what a serializer raised, with its path inside ``value``."""
    while not isinstance(error, strict.NotJSON):
        if error is None:
            return None
        error = error.__cause__
    place = path + error.path
    try:
        found = (at for at, item in _places(value, path, {}) if item is error.offender)
        place = next(found, place)
    except Exception:  # attributes may be properties that raise; a path is only a help
        pass
    return strict.NotJSON(error.problem, error.offender, place)


def _written(value: object, path: str, levels: int) -> object:
    if isinstance(value, (str, int, float, type(None))):
        return strict.plain(value, path)
    if not levels:
        problem = f"nested deeper than {strict.MAX_DEPTH} levels, or contains itself"
        raise strict.NotJSON(problem, value, path)
    if isinstance(value, dict):
        return _mapping(value, path, levels)
    if isinstance(value, (list, tuple, Set)):
        items = [
            _written(item, path + strict.segment(index), levels - 1)
            for index, item in enumerate(value)
        ]
        return sorted(items, key=canonical_dumps) if isinstance(value, Set) else items
    hint = _READ_ONCE if isinstance(value, Iterator) else _HINTS.get(type(value))
    if hint:
        raise strict.NotJSON(f"{type(value).__name__} is not JSON; {hint}", value, path)
    try:
        if isinstance(value, BaseModel) or dataclasses.is_dataclass(value):
            cls: Any = type(value)
            return _adapter_of_class(cls).to_json_value(value, strictly=False)
        return to_jsonable_python(value, bytes_mode="base64")
    except Exception as error:
        raise _refusal(value, path, error) from None


def _mapping(value: dict[object, object], path: str, levels: int) -> dict[str, object]:
    written: dict[str, object] = {}
    for key, item in value.items():
        name = key if isinstance(key, str) else _key(key, path)
        if name in written:
            raise strict.NotJSON(f"two keys are both written {name!r}", value, path)
        written[name] = _written(item, path + strict.segment(key), levels - 1)
    return written


def _key(key: object, path: str) -> str:
    try:
        [name] = to_jsonable_python({key: None}, bytes_mode="base64")
    except Exception:
        raise strict.NotJSON(f"the key {key!r} cannot be written", key, path) from None
    check_key(key, name, key, path)
    return str(name)


def _refusal(value: object, path: str, error: Exception) -> strict.NotJSON:
    """Names the innermost value that cannot be written, not the model around it."""
    if (known := placed(error, value, path)) is not None:
        return known
    for place, item in _places(value, path, {}):
        if not _has_parts(item):
            try:
                to_jsonable_python(item, bytes_mode="base64")
            except Exception:
                name = type(item).__name__
                hint = "convert it to something that is, or pass what it stands for"
                return strict.NotJSON(f"{name} is not JSON; {hint}", item, place)
    reason = str(error).partition("\n")[0]
    return strict.NotJSON(f"{type(value).__name__} is not JSON ({reason})", value, path)


def _has_parts(value: object) -> bool:
    return isinstance(value, (dict, list, tuple, Set)) or bool(_fields(value))


def _fields(value: object) -> dict[str, object]:
    if isinstance(value, BaseModel):
        return {**value.__dict__, **(value.__pydantic_extra__ or {})}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name, None) for item in dataclasses.fields(value)}
    return {}


def _places(value: object, path: str, around: dict[int, None]) -> Iterator[tuple[str, object]]:
    yield path, value
    if id(value) in around or len(around) == strict.MAX_DEPTH:
        return
    around[id(value)] = None
    if isinstance(value, dict):
        parts = [(strict.segment(key), item) for key, item in value.items()]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        parts = [(strict.segment(name), getattr(value, name)) for name in value._fields]
    elif isinstance(value, (list, tuple, Set)):
        parts = [(strict.segment(index), item) for index, item in enumerate(value)]
    else:
        parts = [(strict.segment(name), item) for name, item in _fields(value).items()]
    for place, item in parts:
        yield from _places(item, path + place, around)
    del around[id(value)]
