"""A call's arguments -> canonical JSON text: with its target, what makes an effect that effect."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from .. import strict
from ..canonical import canonical_dumps
from .hints import hints_of
from .sizes import within_limit
from .values import Codec, codec_for

__all__ = [
    "ArgumentsCodec",
    "arguments_codec",
    "encode_named_arguments",
    "encode_plain_arguments",
    "return_codec",
]

_PATH = "args"


def arguments_codec(fn: Callable[..., object], *, bound_receiver: bool = False) -> ArgumentsCodec:
    """The codec of the arguments of ``fn``.

    With ``bound_receiver`` the first parameter (``self``, ``cls``) takes part in the call and is no
    part of the text. Raises ``TypeError`` where ``fn`` has no signature that Python can tell.
    """
    return ArgumentsCodec(fn, bound_receiver)


def return_codec(fn: Callable[..., object]) -> Codec:
    """The codec of what ``fn`` is annotated to return."""
    return codec_for(hints_of(fn).get("return", inspect.Parameter.empty))


def encode_plain_arguments(args: Mapping[str, object]) -> str:
    """Arguments that have no annotations, in canonical form. Raises ``TypeError`` naming a path."""
    text = canonical_dumps(args if isinstance(args, dict) else dict(args), _PATH)
    return within_limit(text, _PATH)


def encode_named_arguments(fn: Callable[..., object], args: Mapping[str, object]) -> str:
    """Arguments as they are given, none added, by the annotations of ``fn``, in canonical form.

    Raises Python's own ``TypeError`` where they do not fit a signature that Python can tell.
    """
    with suppress(ValueError):  # a builtin without a signature tells when it is called
        inspect.signature(fn).bind(**args)
    hints = hints_of(fn)
    plain = {
        name: codec_for(hints.get(name, inspect.Parameter.empty)).plain(
            value, _PATH + strict.segment(name)
        )
        for name, value in args.items()
    }
    return within_limit(canonical_dumps(plain, _PATH), _PATH)


class ArgumentsCodec:
    """Writes the arguments of one callable's calls (protocol.md 13.8)."""

    def __init__(self, fn: Callable[..., object], bound_receiver: bool) -> None:
        try:
            self._signature = inspect.signature(fn)
        except ValueError:
            message = f"{fn!r} has no signature that Python can tell; wrap it in a function"
            raise TypeError(message) from None
        parameters = list(self._signature.parameters.values())
        self._names = {item.name for item in parameters}
        self._positional = [
            item.name for item in parameters if item.kind is item.POSITIONAL_OR_KEYWORD
        ]
        self._is_simple = all(
            item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY) for item in parameters
        )
        self._receiver = parameters.pop(0).name if bound_receiver and parameters else None
        self._defaults = {
            item.name: item.default for item in parameters if item.default is not item.empty
        }
        hints = hints_of(fn)
        self._as_they_are: list[_Part] = []
        self._converted: list[_Part] = []
        for item in parameters:
            codec = codec_for(hints.get(item.name, item.annotation))
            part = _Part(item.name, f"{_PATH}.{item.name}", _writer(item, codec))
            (self._as_they_are if codec.as_it_is else self._converted).append(part)

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The canonical text of a call: every parameter by name, defaults included.

        ``*args`` is a list and ``**kw`` an object, each under its own name. Raises Python's own
        ``TypeError`` for a call that does not fit, and one that names the path
        (``args.items[3].lock``) for a value that cannot be written.
        """
        bound = self._bound(args, kwargs)
        for name, path, write in self._converted:
            bound[name] = write(bound[name], path)
        try:
            text = canonical_dumps(bound, _PATH)
        except strict.NotJSON:
            # Either this converts what does not fit its annotation, or it names the next step.
            for name, path, write in self._as_they_are:
                bound[name] = write(bound[name], path)
            text = canonical_dumps(bound, _PATH)
        return within_limit(text, _PATH)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        # Signature.bind costs ten times this, so it serves unusual signatures and wrong calls.
        if self._is_simple and len(args) <= len(self._positional):
            given = dict(zip(self._positional, args, strict=False))
            if given.keys().isdisjoint(kwargs):
                bound = {**self._defaults, **given, **kwargs}
                if bound.keys() == self._names:
                    return self._without_receiver(bound)
        call = self._signature.bind(*args, **kwargs)
        call.apply_defaults()
        return self._without_receiver(dict(call.arguments))

    def _without_receiver(self, bound: dict[str, Any]) -> dict[str, Any]:
        if self._receiver is not None:
            del bound[self._receiver]
        return bound


class _Part(NamedTuple):
    name: str
    path: str
    write: Callable[[Any, str], object]


def _writer(parameter: inspect.Parameter, codec: Codec) -> Callable[[Any, str], object]:
    """An annotation of ``*args`` or ``**kw`` is that of each member."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return lambda value, path: [
            codec.plain(item, path + strict.segment(index)) for index, item in enumerate(value)
        ]
    if parameter.kind is parameter.VAR_KEYWORD:
        return lambda value, path: {
            name: codec.plain(item, path + strict.segment(name)) for name, item in value.items()
        }
    return codec.plain
