"""Pydantic's schema of an annotation, changed so that what it writes is exact and stable.

Pydantic writes for people and APIs: sets in hash order, ``bytes`` as UTF-8 text, fields by alias,
anything at all under ``Any``. What is recorded must read back as the same value and give the same
text in every process, so a copy of the schema is changed (the type itself is left alone):

* sets are sorted by the canonical JSON of their elements; ``bytes`` are base64;
* ``Any`` holds strict JSON only, and no two keys of a ``dict`` may be written alike;
* a field is written by the name by which it is read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Set
from decimal import Decimal
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from pydantic_core import SchemaSerializer, SchemaValidator, core_schema

from .. import strict
from ..canonical import canonical_dumps

__all__ = ["Adapter", "Unsupported", "adapter_for", "check_key"]

_Node = dict[str, Any]

_STORED_FORM: core_schema.CoreConfig = {
    "ser_json_bytes": "base64",
    "val_json_bytes": "base64",
    "ser_json_timedelta": "iso8601",
    "ser_json_inf_nan": "constants",
    "validate_by_alias": True,
}
_HAS_OWN_CONFIG = frozenset({"model", "dataclass", "typed-dict"})
_INNER = frozenset(
    {
        *("schema", "items_schema", "keys_schema", "values_schema", "return_schema", "steps"),
        *("json_schema", "python_schema", "lax_schema", "strict_schema", "serialization"),
        *("arguments_schema", "extras_schema", "computed_fields", "definitions"),
    }
)
_INNER_BY_NAME = frozenset({"fields", "choices"})

# A nested model has a serializer and a validator of its own, built from the unchanged schema.
_FROM_SCHEMA_ONLY: dict[str, Any] = {"_use_prebuilt": False}


class Unsupported(TypeError):
    """Pydantic has no schema for an annotation, or none that reads back what it wrote."""


class Adapter(NamedTuple):
    """Writes and reads one annotation's values in the stored form."""

    serializer: SchemaSerializer
    validator: SchemaValidator

    def to_json_value(self, value: object, *, strictly: bool) -> object:
        """``value`` as JSON's types; ``strictly`` refuses one that does not fit the annotation."""
        warnings: Any = "error" if strictly else "none"
        return self.serializer.to_python(
            value, mode="json", by_alias=True, round_trip=True, warnings=warnings
        )


def adapter_for(annotation: Any) -> Adapter:
    """The adapter of an annotation. Raises `Unsupported` where pydantic cannot build one."""
    try:
        schema: Any = _stored(dict(TypeAdapter(annotation).core_schema))
        serializer = SchemaSerializer(schema, _STORED_FORM, **_FROM_SCHEMA_ONLY)
        validator = SchemaValidator(schema, _STORED_FORM, **_FROM_SCHEMA_ONLY)
    except Unsupported:
        raise
    except Exception as error:  # pydantic raises many kinds here, a user's hook any kind
        reason = str(error).partition(". ")[0].partition("\n")[0]
        raise Unsupported(
            f"convert it first: pydantic cannot take {annotation!r} ({reason})"
        ) from error
    return Adapter(serializer, validator)


def _stored(node: _Node) -> _Node:
    kind = node.get("type")
    if kind == "generator":
        raise Unsupported("convert it first, to a list say: an iterator can be read only once")
    if kind == "dict" and node.get("keys_schema", {}).get("type") in _NO_KEYS:
        raise Unsupported(
            "give it text as keys: what a key of several parts is written as is not read"
        )
    changed = dict(node)
    for key in node.keys() & _INNER:
        changed[key] = _inner(node[key])
    for key in node.keys() & _INNER_BY_NAME:
        named = node[key]
        changed[key] = (
            {name: _inner(item) for name, item in named.items()}
            if isinstance(named, dict)
            else _inner(named)
        )
    if kind == "typed-dict" and node.get("extra_behavior", "ignore") == "ignore":
        # A dict that has more keys than it should still comes back whole.
        changed["extra_behavior"] = "allow"
        changed["extras_schema"] = _stored({"type": "any"})
    if kind in _HAS_OWN_CONFIG:
        changed["config"] = {**(node.get("config") or {}), **_STORED_FORM}
    if "validation_alias" in node or "serialization_alias" in node:
        _write_as_read(changed)
    if "serialization" not in node and (maker := _SERIALIZERS.get(str(kind))):
        serialization = maker(changed)
        if serialization is not None:
            changed["serialization"] = serialization
    return changed


def _inner(value: Any) -> Any:
    if isinstance(value, dict):
        return _stored(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_inner(item) for item in value)
    return value


def _write_as_read(field: _Node) -> None:
    alias = field.pop("validation_alias", None)
    field.pop("serialization_alias", None)
    if isinstance(alias, list):  # AliasPath or AliasChoices: paths, of which one may be one name
        paths = [path if isinstance(path, list) else [path] for path in alias]
        alias = next((path[0] for path in paths if len(path) == 1), None)
    if alias is not None:
        field["validation_alias"] = field["serialization_alias"] = alias


def _through(write: Callable[[object], Any], value: object) -> Any:
    """``write(value)``; pydantic tells what an inner serializer raised as text, one level up."""
    try:
        return write(value)
    except Exception as error:
        if isinstance(error.__cause__, strict.NotJSON):
            raise error.__cause__ from None
        raise


def _sorted_set(node: _Node) -> object:
    return core_schema.wrap_serializer_function_ser_schema(_write_set, when_used="json")


def _write_set(value: object, write: Callable[[object], Any]) -> object:
    items = _through(write, value)
    return sorted(items, key=canonical_dumps) if isinstance(value, Set) else items


def _strict_any(node: _Node) -> object:
    return core_schema.plain_serializer_function_ser_schema(_write_any, when_used="json")


def _write_any(value: object) -> object:
    return strict.plain(value, "")


def _distinct_keys(node: _Node) -> object:
    kind = node.get("keys_schema", {"type": "any"}).get("type")
    write = _write_any_dict if kind == "any" else _write_dict
    return core_schema.wrap_serializer_function_ser_schema(write, when_used="json")


def _write_any_dict(value: object, write: Callable[[object], Any]) -> object:
    if isinstance(value, dict):
        try:
            strict.plain(dict.fromkeys(value), "")
        except strict.NotJSON as error:
            error.offender = value
            raise
    return _through(write, value)


def _write_dict(value: object, write: Callable[[object], Any]) -> object:
    written = _through(write, value)
    if not isinstance(value, dict):
        return written
    if any("\ufffd" in key for key in written):
        for key in value:
            check_key(key, "\ufffd", value)
    if len(written) != len(value):
        raise strict.NotJSON("two keys are written alike", value)
    return written


def check_key(key: object, written: str, offender: object, path: str = "") -> None:
    """Raise for a lone surrogate in a key, which pydantic writes as U+FFFD, there alone."""
    if "\ufffd" in written and strict.mended(str(key)) != str(key):
        raise strict.NotJSON(f"the key {key!a} holds a lone surrogate; replace it", offender, path)


def _named_tuple(node: _Node) -> object:
    """Pydantic 2.13 has no node for a ``NamedTuple``: it is a call, written by what is in it."""
    cls = node.get("function")
    if not (inspect.isclass(cls) and issubclass(cls, tuple) and hasattr(cls, "_fields")):
        return None
    fields = [item["schema"] for item in node["arguments_schema"]["arguments_schema"]]
    return core_schema.plain_serializer_function_ser_schema(
        tuple, return_schema=core_schema.tuple_schema(fields), when_used="json"
    )


def _finite_decimal(node: _Node) -> object:
    return core_schema.wrap_serializer_function_ser_schema(_write_decimal, when_used="json")


def _write_decimal(value: object, write: Callable[[object], Any]) -> object:
    if isinstance(value, Decimal) and not value.is_finite():
        raise strict.NotJSON(f"{value} is not JSON; convert it first", value)
    return write(value)


_NO_KEYS = ("tuple", "call", "model", "dataclass", "set", "frozenset")

_SERIALIZERS: dict[str, Callable[[_Node], object]] = {
    "set": _sorted_set,
    "frozenset": _sorted_set,
    "any": _strict_any,
    "dict": _distinct_keys,
    "call": _named_tuple,
    "decimal": _finite_decimal,
}
