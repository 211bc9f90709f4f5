"""The JSON Schema of an input that is given member by member."""

from __future__ import annotations

from inspect import Parameter
from typing import Any, Literal

from pydantic import TypeAdapter

from ..codec import codec_for

__all__ = ["known", "object_schema"]


def object_schema(parameters: list[Parameter], hints: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object with a member for each parameter; required without a default."""
    named: list[tuple[str, Literal["validation"], TypeAdapter[Any]]] = [
        (item.name, "validation", TypeAdapter(known(hints[item.name]))) for item in parameters
    ]
    schemas, shared = TypeAdapter.json_schemas(named)
    properties = {name: dict(schema) for (name, _), schema in schemas.items()}
    required = []
    for item in parameters:
        if item.default is Parameter.empty:
            required.append(item.name)
            continue
        try:
            codec = codec_for(hints[item.name])
            properties[item.name]["default"] = codec.plain(item.default, item.name)
        except TypeError:  # a sentinel: the schema says that the member is optional, no more
            pass
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return schema | shared


def known(hint: Any) -> Any:
    """``hint``, or ``Any`` where there is none or its name is unknown."""
    return Any if hint is Parameter.empty or isinstance(hint, str) else hint
