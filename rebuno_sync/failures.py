"""A body's exception <-> the JSON text that is recorded for it.

The record names the exception, tells what it said, and holds what is needed to build it again as
far as that is strict JSON. Nothing is pickled, imported or called to read it: a record comes from
a kernel, which is another machine.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from . import strict
from .errors import StepTimeout, ToolError
from .naming import MAIN_NAMES, module_name

__all__ = ["decode_failure", "encode_failure", "not_storable", "timed_out"]

_MOST_MESSAGE = 64 * 1024
_MOST_TRACEBACK = 16_000
_MOST_LAST_LINE = 4_000
_MOST_REPR = 1024
_MOST_PART = 64 * 1024
"""Characters of JSON that one argument list or attribute may take."""
_MOST_STATE = 256 * 1024
_MOST_MEMBERS = 64
_MOST_LEVELS = 5
_PACKAGE = f"{Path(__file__).parent}{os.sep}"
_TIMEOUT, _INDETERMINATE = "timeout", "indeterminate"


def encode_failure(error: BaseException) -> str:
    """The recorded text of ``error``. Never raises.

    ``message`` (at most 64 KiB) and ``type`` are always there, ``traceback`` (the last 16,000
    characters of its text) almost always; ``args``, ``state`` and ``members`` (of a group) where
    strict JSON holds them without loss; ``omitted`` names the attributes it does not hold.
    """
    record = _record(error, _leaves_of(error))
    record["traceback"] = _traceback_of(error)
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def decode_failure(text: str | None, tool_id: str, step_id: str) -> ToolError:
    """The `ToolError` of a recorded failure, its cause the original exception if it can be built.

    Reads what any kernel or SDK records: the message is the ``message``, else the ``reason`` (and
    what became of the subagent, where it is that of one), else the JSON text (protocol.md 13.8).
    """
    try:
        record = json.loads(text or "null")
    except (ValueError, RecursionError):
        record = text
    if isinstance(record, str):
        return ToolError(record, tool_id, step_id)
    if not isinstance(record, dict):
        return ToolError(text or "null", tool_id, step_id)
    message = _text_in(record, "message") or _reason_in(record) or str(text)
    told = [_text_in(record, key) for key in ("type", "traceback", "reason")]
    reason, name = record.get("reason"), record.get("type")
    if reason == _TIMEOUT or (reason == _INDETERMINATE and name == _STEP_TIMEOUT):
        return StepTimeout(message, tool_id, step_id, *told)
    error = ToolError(message, tool_id, step_id, *told)
    error.__cause__ = _rebuilt(record)
    return error


def not_storable(value: object, problem: object) -> str:
    """The recorded text for a result that cannot be encoded: the effect ran, and failed by this."""
    # A kernel that refuses NUL must not be sent it in its own words.
    told = _said(problem).replace("\0", "\\0")
    message = f"ran, value not storable: {told}"
    record = {"message": _capped(message, _MOST_MESSAGE), "repr": _repr_of(value)}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def timed_out(message: str, stack: str, *, indeterminate: bool = False) -> str:
    """The recorded text for a body that did not end in its time, and where it was then.

    ``indeterminate``: whether a further identical call is to be refused (protocol.md 8.2).
    """
    record = {
        "message": message,
        "type": _STEP_TIMEOUT,
        "reason": _INDETERMINATE if indeterminate else _TIMEOUT,
        "traceback": strict.mended(stack[-_MOST_TRACEBACK:]),
    }
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def _record(error: BaseException, leaves: list[BaseException] | None) -> dict[str, object]:
    """``leaves`` are those of a group that is small enough to be recorded member by member."""
    record: dict[str, object] = {"message": _message_of(error), "type": _name_of(type(error))}
    if isinstance(error, BaseExceptionGroup) and leaves is not None:
        told = "; ".join(f"{type(leaf).__name__}: {_said(leaf)}" for leaf in leaves)
        record["message"] = _capped(f"{record['message']}: {told}", _MOST_MESSAGE)
        record["members"] = [_record(member, _leaves_of(member)) for member in error.exceptions]
    try:
        _, args, *rest = cast(tuple[Any, ...], _builtin_base(type(error)).__reduce__(error))
        given = [args[0]] if "members" in record else list(args)
        attributes = dict(rest[0]) if rest and rest[0] else {}
    except Exception:  # a subclass may break its own attributes; what is said is enough
        return record
    if _size(given) <= _MOST_PART:
        record["args"] = given
    state: dict[str, object] = {}
    omitted: list[str] = []
    room: float = _MOST_STATE
    for name, value in attributes.items():
        size = _size(value)
        if name == "args" or type(name) is not str:
            continue
        if size <= min(room, _MOST_PART) and _size(name) <= _MOST_PART:
            state[name] = value
            room -= size
        else:
            omitted.append(strict.mended(name))
    return record | ({"state": state} if state else {}) | ({"omitted": omitted} if omitted else {})


def _leaves_of(error: BaseException) -> list[BaseException] | None:
    """The exceptions of a group that are no groups; ``None`` if they are too many or too deep."""
    level, leaves, members = [error], [], 0
    for _ in range(_MOST_LEVELS):
        groups = [item for item in level if isinstance(item, BaseExceptionGroup)]
        leaves += [item for item in level if not isinstance(item, BaseExceptionGroup)]
        level = [member for group in groups for member in group.exceptions]
        members += len(level)
        if not level or members > _MOST_MEMBERS:
            break
    return None if level else leaves


def _rebuilt(record: dict[str, Any]) -> BaseException | None:
    """The recorded exception, made without its class's own ``__init__``; or ``None``."""
    try:
        cls = _class_named(record["type"])
        args = list(record["args"])
        if "members" in record:
            args.append([_rebuilt(member) or _stand_in(member) for member in record["members"]])
        base: Any = _builtin_base(cls)
        error = cast(BaseException, base.__new__(cls, *args))
        base.__init__(error, *args)
        for name, value in record.get("state", {}).items():
            BaseException.__setattr__(error, name, value)
        if omitted := record.get("omitted"):
            error.add_note(f"built from its record, without: {', '.join(omitted)}")
        str(error)  # one that cannot even say what it is would break whoever prints it
    except Exception:  # the record is anybody's JSON
        return None
    return error


def _stand_in(record: dict[str, Any]) -> ToolError:
    return ToolError(_text_in(record, "message"), error_type=_text_in(record, "type"))


def _builtin_base(cls: type[BaseException]) -> type[BaseException]:
    """The class in C that holds what an attribute dictionary does not, an ``errno`` for one."""
    return next(base for base in cls.__mro__ if base.__module__ == "builtins")


def _class_named(name: str) -> type[BaseException]:
    """A class that is loaded already. Looks in dictionaries only: a lookup can be code."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:cut])
        # The program's own file may be run now and have been imported then, or the other way.
        run = [main for main in MAIN_NAMES if main in sys.modules and module_name(main) == module]
        for candidate in [module, *run]:
            found: Any = sys.modules.get(candidate)
            for part in parts[cut:]:
                found = vars(found).get(part) if hasattr(found, "__dict__") else None
            if isinstance(found, type) and issubclass(found, BaseException):
                return found
    raise LookupError(name)


def _size(value: object) -> float:
    """Characters of JSON; infinite where JSON would not give ``value`` back as it is."""
    try:
        text = strict.compact(value, "")
    except TypeError:
        return float("inf")
    return len(text) if _is_lossless(value) else float("inf")


def _is_lossless(value: object) -> bool:
    if type(value) is list:
        return all(map(_is_lossless, value))
    if type(value) is dict:
        return all(type(key) is str for key in value) and all(map(_is_lossless, value.values()))
    return value is None or type(value) in (str, int, float, bool)


def _name_of(cls: type[BaseException]) -> str:
    return strict.mended(f"{module_name(cls.__module__)}.{cls.__qualname__}")


def _message_of(error: BaseException) -> str:
    return _capped(_said(error), _MOST_MESSAGE) or type(error).__name__


_STEP_TIMEOUT = _name_of(StepTimeout)


def _said(thing: object) -> str:
    try:
        return strict.mended(str(thing))
    except Exception:
        return f"<{type(thing).__name__} that cannot be printed>"


def _repr_of(value: object) -> str:
    try:
        return _capped(strict.mended(repr(value)), _MOST_REPR)
    except Exception:
        return f"<{type(value).__name__} without a repr>"


def _traceback_of(error: BaseException) -> str:
    try:
        told = traceback.format_exception(type(error), error, _below_us(error.__traceback__))
        if len(told[-1]) > _MOST_LAST_LINE:  # A long message must not push out the frames.
            told[-1] = told[-1][:_MOST_LAST_LINE] + "..."
        return strict.mended("".join(told)[-_MOST_TRACEBACK:])
    except Exception:
        return ""


def _below_us(outermost: TracebackType | None) -> TracebackType | None:
    """What is below the frames of this package that called the body; all where nothing is."""
    own = outermost
    while own is not None and own.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        own = own.tb_next
    return own or outermost


def _capped(text: str, most_bytes: int) -> str:
    if len(text) * 4 <= most_bytes:
        return text
    return text.encode()[:most_bytes].decode("utf-8", "ignore")


def _reason_in(record: dict[str, Any]) -> str:
    """A kernel's word for why a step failed; of a subagent also which one and why (protocol.md
    9.7)."""
    reason, execution_id = _text_in(record, "reason"), _text_in(record, "execution_id")
    if not (reason and execution_id):
        return reason
    why = _text_in(record, "failure_reason")
    return f"{reason}: execution {execution_id}{why and ': '}{why}"


def _text_in(record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    return value if isinstance(value, str) else ""
