"""How an execution's input reaches its handler."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from .. import strict
from ..codec import PLAIN, Codec, codec_for, within_limit
from ..codec.hints import hints_of
from ..codec.schemas import Unsupported, adapter_for
from ..types import Result
from .handlers import Shape, model_of, name_of, refuse_unsuitable, shape_of, signature_of
from .schema import known, object_schema

__all__ = ["Binding", "InputInvalid"]

_log = logging.getLogger(__name__)

_PATH = "input"
_EMPTY = inspect.Parameter.empty


class InputInvalid(ValueError):
    """The input does not fit the handler."""


class Binding:
    """A handler and the way its input reaches it (protocol.md 13.6).

    ``shape`` is ``"model"`` (one parameter, a pydantic model, takes the whole input), ``"raw"``
    (one parameter, ``dict`` or without a type, takes it unchanged) or ``"kwargs"`` (each parameter
    takes the input's member of its name). ``output`` is the codec of what the handler returns.

    Raises ``TypeError`` for a handler that is asynchronous or a generator, or whose input could
    only come by position.
    """

    def __init__(self, handler: Callable[..., object]) -> None:
        refuse_unsuitable(handler)
        self.handler = handler
        hints = hints_of(handler)
        self._parameters = list(signature_of(handler).parameters.values())
        self._hints: dict[str, Any] = {
            item.name: hints.get(item.name, item.annotation) for item in self._parameters
        }
        if [item.kind for item in self._parameters] == [inspect.Parameter.VAR_POSITIONAL]:
            raise TypeError(f"{name_of(handler)} takes only *args, but an input has names")
        self._taking = [
            item
            for item in self._parameters
            if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)
        ]
        self.shape: Shape = shape_of(self._parameters, self._hints)
        self._readers = {name: _reader_of(hint) for name, hint in self._hints.items()}
        returned = hints.get("return", _EMPTY)
        self.output: Codec = PLAIN if returned is Result else codec_for(returned)
        self._warned = False

    def encode_input(self, value: object) -> str:
        """The JSON text of an input as a caller gives it; ``None`` is ``null``.

        The members of a ``dict`` are written by the annotations of the parameters, or of the
        model's fields. Raises ``TypeError`` naming the path (``input.when``).
        """
        if value is None:
            return "null"
        if isinstance(value, BaseModel):
            return codec_for(type(value)).encode(value, _PATH)
        if self.shape == "raw" or not isinstance(value, dict):
            return within_limit(strict.compact(value, _PATH), _PATH)
        annotations = self._member_annotations()
        members = {}
        for key, item in value.items():
            codec = codec_for(annotations.get(key, _EMPTY))
            members[key] = codec.plain(item, _PATH + strict.segment(key))
        return within_limit(strict.compact(members, _PATH), _PATH)

    def refuse_dropped(self, input_json: str) -> None:
        """Raises `InputInvalid` for an input of which `bind` would drop everything."""
        value = json.loads(input_json)
        if value is not None and self._drops(value):
            raise InputInvalid(self._dropped(value))

    def bind(self, input_json: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with which the handler takes an input. Raises `InputInvalid`.

        An input that is no object counts as an empty one where members are expected; the log says
        that it was dropped.
        """
        try:
            value = PLAIN.decode(input_json)
        except ValueError as error:
            raise InputInvalid(f"input validation failed: {error}") from error
        if self.shape == "raw":
            self._warn_of_a_member(value)
            return self._call({self._taking[0].name: value})
        given_object = value is None or not self._drops(value)
        if not isinstance(value, dict):
            if not given_object:
                _log.warning("%s", self._dropped(value))
            value, input_json = {}, "{}"
        if self.shape == "model":
            [(name, read)] = self._readers.items()
            try:
                return self._call({name: read(input_json)})
            except ValidationError as error:
                raise InputInvalid(f"input validation failed: {error}") from error
        missing = [
            item.name for item in self._taking if item.default is _EMPTY and item.name not in value
        ]
        if missing:
            told = "" if given_object else " (the input is no object with the parameters by name)"
            raise InputInvalid(f"missing required input fields: {', '.join(missing)}{told}")
        return self._call(self._members(value))

    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema of the input; ``None`` where any will do or pydantic has none."""
        if self.shape == "raw":
            return None
        try:
            if self.shape == "model":
                [hint] = self._hints.values()
                return TypeAdapter(hint).json_schema()
            return object_schema(self._taking, self._hints)
        except Exception:  # pydantic raises many kinds here, a user's hook any kind
            return None

    def _drops(self, value: object) -> bool:
        return self.shape != "raw" and not isinstance(value, dict)

    def _dropped(self, value: object) -> str:
        names = ", ".join(item.name for item in self._taking) or "none"
        return (
            f"{name_of(self.handler)} takes an object with its parameters by name ({names}), and"
            f" the input is no object, so nothing of it is taken: {json.dumps(value)[:80]}"
        )

    def _warn_of_a_member(self, value: object) -> None:
        """Once. Who gives an object with just the parameter's name may have meant its member."""
        name = self._taking[0].name
        if not self._warned and isinstance(value, dict) and value.keys() == {name}:
            self._warned = True
            _log.warning(
                "%s takes the whole input as %s, the object with the member %r and not that member,"
                " because %s is its only parameter and has no type, or is a plain dict. With a"
                " type, as in %s: str or %s: dict[str, Any], it takes the member",
                name_of(self.handler),
                *(name,) * 5,
            )

    def _members(self, value: dict[str, Any]) -> dict[str, Any]:
        bound: dict[str, Any] = {}
        problems = []
        for item in self._taking:
            if item.name not in value:
                continue
            try:
                bound[item.name] = self._readers[item.name](json.dumps(value[item.name]))
            except ValidationError as error:
                problems += [
                    f"{'.'.join(map(str, (item.name, *detail['loc'])))}: {detail['msg']}"
                    for detail in error.errors(include_url=False, include_input=False)
                ]
        if problems:
            raise InputInvalid(f"input validation failed: {'; '.join(problems)}")
        return bound

    def _call(self, bound: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # No positional argument can be skipped, so one that is not given gets its default here.
        positional = tuple(
            bound.pop(item.name, item.default)
            for item in self._taking
            if item.kind is item.POSITIONAL_ONLY
        )
        return positional, bound

    def _member_annotations(self) -> dict[Any, Any]:
        if self.shape == "kwargs":
            return self._hints
        [hint] = self._hints.values()
        model = model_of(hint)
        assert model is not None
        annotations: dict[Any, Any] = {}
        for name, field in model.model_fields.items():
            annotations[name] = field.annotation
            if isinstance(field.validation_alias, str):
                annotations[field.validation_alias] = field.annotation
        return annotations


def _reader_of(hint: Any) -> Callable[[str], Any]:
    """Reads one value leniently, as pydantic does for input: ``"5"`` for an ``int`` is 5."""
    try:
        return adapter_for(known(hint)).validator.validate_json
    except Unsupported:
        return PLAIN.decode
