"""What clients send, as Go's decoder reads it (protocol.md 1.1): strict about keys, and JSON values
kept as the text that was sent."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NoReturn

from ...errors import APIError, api_error
from ...strict import mended
from ...types import LeaseKey
from .request import Request

__all__ = [
    "Fields",
    "bad_request",
    "decode",
    "elements_of",
    "lease_of",
    "members_of",
    "uuid_text",
]

_WHITE = " \t\n\r"

_NOTHING = frozenset({"null", '""', "[]", "{}", "0", "false"})
"""What a field may say that this kernel knows and has not built."""

_UUID = re.compile(
    r"(?:urn:uuid:)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|\{[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\}"
    r"|[0-9a-f]{32}",
    re.ASCII | re.IGNORECASE,
)
_PLAIN_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_POSITIVE = re.compile(r"\+?0*[1-9][0-9]{0,8}", re.ASCII)


def bad_request(detail: str) -> APIError:
    return api_error("validation_error", f"validation error: {detail}", 400)


def uuid_text(text: str) -> str | None:
    """A UUID in canonical form, from any of the forms of Go's ``uuid.Parse``; else ``None``."""
    if _PLAIN_UUID.fullmatch(text):
        return text
    return str(uuid.UUID(text.lower())) if _UUID.fullmatch(text) else None


def lease_of(request: Request, execution_id: str) -> LeaseKey:
    """The lease in the headers (protocol.md 5.4), with its runner where one is named."""
    dispatch_id = uuid_text(request.header("REBUNO_DISPATCH_ID"))
    if dispatch_id is None:
        raise bad_request("bad or missing Rebuno-Dispatch-Id")
    attempt = request.header("REBUNO_DISPATCH_ATTEMPT")
    if not _POSITIVE.fullmatch(attempt):
        raise bad_request("bad or missing Rebuno-Dispatch-Attempt")
    runner = uuid_text(sent) if (sent := request.header("REBUNO_RUNNER")) else ""
    if runner is None:
        raise bad_request("Rebuno-Runner must be a UUID")
    return LeaseKey(execution_id, dispatch_id, int(attempt), runner)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_VALUE = json.JSONDecoder(parse_constant=_refuse_constant)


class Fields:
    """The members of a JSON object: each as its raw JSON text, read by type on demand."""

    __slots__ = ("_raw",)

    def __init__(self, raw: Mapping[str, str]) -> None:
        self._raw = raw

    def raw(self, name: str) -> str | None:
        """The JSON text of a member, as it was sent; ``None`` when it is absent."""
        return self._raw.get(name)

    def text(self, name: str) -> str:
        """A text; empty when it is absent."""
        return self.optional_text(name) or ""

    def optional_text(self, name: str) -> str | None:
        value = self._read(name, (str,))
        return None if value is None else mended(value)

    def number(self, name: str) -> float:
        """A finite number; 0 when it is absent."""
        try:
            value = float(self._read(name, (int, float)) or 0)
        except OverflowError:
            value = float("inf")
        if value in (float("inf"), float("-inf")):
            raise bad_request(f"{name} is out of range")
        return value

    def integer(self, name: str) -> int:
        """A whole number of 64 bits; 0 when it is absent."""
        value = self._read(name, (int,)) or 0
        if not -(2**63) <= value < 2**63:
            raise bad_request(f"{name} is out of range")
        return int(value)

    def array(self, name: str) -> list[Any]:
        return list(self._read(name, (list,)) or [])

    def flag(self, name: str) -> bool | None:
        """Whether; ``None`` when it is absent."""
        found: bool | None = self._read(name, (bool,))
        return found

    def members(self, name: str) -> dict[str, Any] | None:
        """An object; ``None`` when it is absent."""
        found: dict[str, Any] | None = self._read(name, (dict,))
        return found

    def refuse(self, *names: str) -> None:
        """Refuse what is known to the protocol and not built in this kernel, unless it is empty."""
        for name in names:
            text = self._raw.get(name)
            if text is not None and text not in _NOTHING and "".join(text.split()) not in _NOTHING:
                raise bad_request(f"this kernel has no {name} yet; leave the field out")

    def _read(self, name: str, kinds: tuple[type, ...]) -> Any:
        text = self._raw.get(name)
        try:
            value = None if text is None else json.loads(text)
        except RecursionError:  # Here the stack is higher than where the body was read.
            raise bad_request(f"{name} is nested too deep") from None
        if value is not None and type(value) not in kinds:
            raise bad_request(f"{name} has the wrong type")
        return value


def decode(body: bytes, known: frozenset[str]) -> Fields:
    """Read the first JSON value of ``body``: an object with ``known`` keys, in any case.

    A literal ``null`` has no members. Raises a ``validation_error`` for anything else.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = mended(body.decode("utf-8", "surrogateescape"))
    return members_of(text, known)


def members_of(text: str, known: frozenset[str]) -> Fields:
    try:
        members = _members(text)
    except IndexError:
        raise bad_request("the body is not a JSON object: it breaks off") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise bad_request(f"the body is not a JSON object: {error}") from None
    fields = {}
    for name, raw in members:
        key = name if name in known else name.lower()
        if key not in known:
            raise bad_request(f"unknown field {name[:80]!r}")
        fields[key] = raw
    return Fields(fields)


def elements_of(text: str) -> list[str]:
    """The JSON texts of an array's elements; of ``null`` none. ``text`` is valid JSON."""
    at = _skip(text, 0)
    if text.startswith("null", at):
        return []
    if text[at] != "[":
        raise bad_request("an array is expected")
    elements: list[str] = []
    at = _skip(text, at + 1)
    while text[at] != "]":
        _, end = _VALUE.raw_decode(text, at)
        elements.append(text[at:end])
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return elements


def _members(text: str) -> list[tuple[str, str]]:
    at = _skip(text, 0)
    if text.startswith("null", at):
        return []
    if text[at] != "{":
        raise ValueError("it does not begin with {")
    members: list[tuple[str, str]] = []
    at = _skip(text, at + 1)
    if text[at] == "}":
        return members
    while True:
        if text[at] != '"':
            raise ValueError(f"a name is expected at character {at}")
        name, at = scanstring(text, at + 1, True)
        at = _skip(text, at)
        if text[at] != ":":
            raise ValueError(f"a colon is expected at character {at}")
        start = _skip(text, at + 1)
        _, end = _VALUE.raw_decode(text, start)
        members.append((name, text[start:end]))
        at = _skip(text, end)
        if text[at] == "}":
            return members
        if text[at] != ",":
            raise ValueError(f"a comma is expected at character {at}")
        at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while text[at] in _WHITE:
        at += 1
    return at
