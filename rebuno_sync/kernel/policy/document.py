"""A YAML document as it was written: every objection names the line and the place.

Only what YAML is made of is read here (mappings, lists, scalars as text). What a bundle may say is
in ``bundle``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import chain
from typing import Any, NoReturn

from ...strict import mended
from .durations import duration_seconds

__all__ = ["BundleInvalid", "Members", "Node", "read_document"]

_TAG = "tag:yaml.org,2002:"
_LARGEST_CHARACTERS = 256 * 1024
_MOST_VALUES = 50_000
"""With those that aliases repeat: a few lines of them could stand for millions."""
# What begins with a zero is octal to some who read YAML, and decimal to others.
_WHOLE_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})", re.ASCII)
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", re.ASCII)


class BundleInvalid(ValueError):
    """A bundle cannot be used; the message names the line."""


class Node:
    """A value of the document, and what leads to it."""

    def __init__(self, node: Any, path: str) -> None:
        self._node = node
        self._path = path

    def fail(self, objection: str) -> NoReturn:
        where = f"{self._path}: " if self._path else ""
        raise BundleInvalid(f"line {self._node.start_mark.line + 1}: {where}{objection}")

    @property
    def absent(self) -> bool:
        """Whether nothing is written after its key: YAML's null."""
        return bool(self._node.tag == _TAG + "null")

    def members(self, known: Collection[str], hints: dict[str, str] | None = None) -> Members:
        """The members of a mapping, all of them ``known``. ``hints``: what to say of others."""
        if self.absent:
            return Members(self, {})
        if self._node.id != "mapping":
            self.fail("a mapping is expected")
        found: dict[str, Node] = {}
        for key_node, value in self._node.value:
            key = Node(key_node, self._path).text()
            where = Node(key_node, self._path)
            if key in found:
                where.fail(f"{key!r} stands here twice")
            if key not in known:
                hint = (hints or {}).get(key) or f"known are {', '.join(known)}"
                where.fail(f"unknown key {key!r}; {hint}")
            found[key] = Node(value, f"{self._path}.{key}" if self._path else key)
        return Members(self, {key: node for key, node in found.items() if not node.absent})

    def named(self) -> dict[str, Node]:
        """The members of a mapping whose keys are the author's."""
        if self._node.id != "mapping":
            self.fail("a mapping is expected")
        keys = [Node(key, self._path).text() for key, _ in self._node.value]
        self.members(keys)  # None stands there twice.
        values = [value for _, value in self._node.value]
        return {
            key: Node(value, f"{self._path}.{key}") for key, value in zip(keys, values, strict=True)
        }

    def items(self) -> list[Node]:
        if self._node.id != "sequence":
            self.fail("a list is expected")
        items = [Node(node, f"{self._path}[{at}]") for at, node in enumerate(self._node.value)]
        for item in items:
            if item.absent:
                item.fail("nothing is written here; the text null needs quotes")
        return items

    def text(self) -> str:
        """A scalar as it is written: ``5`` is the text 5."""
        if self._node.id != "scalar":
            self.fail("a single value is expected")
        return "" if self.absent else mended(self._node.value)

    def word(self, *allowed: str) -> str:
        """One of the words."""
        word = self.text()
        if word not in allowed:
            self.fail(f"must be one of {', '.join(allowed)}, not {word!r}")
        return word

    def whole_number(self) -> int:
        text = self.text()
        if self._node.tag != _TAG + "int" or not _WHOLE_NUMBER.fullmatch(text):
            self.fail(f"a whole number is expected, not {text!r}")
        return int(text)

    def number(self) -> float:
        text = self.text()
        if self._node.style in ("'", '"') or not _NUMBER.fullmatch(text):
            self.fail(f"a number is expected, not {text!r}")
        return float(text)

    def duration(self) -> float:
        """In seconds. A bare number is none (protocol.md 11.2)."""
        text = self.text()
        if self._node.tag != _TAG + "str":
            self.fail(f"{text} has no unit; write a duration like 30s or 5m")
        try:
            return duration_seconds(text)
        except ValueError as error:
            self.fail(str(error))


class Members:
    """The members of a mapping that say something."""

    def __init__(self, of: Node, nodes: dict[str, Node]) -> None:
        self.of = of
        self.nodes = nodes

    def __contains__(self, key: str) -> bool:
        return key in self.nodes

    def get(self, key: str) -> Node | None:
        return self.nodes.get(key)

    def text(self, key: str) -> str:
        """Empty when it is absent."""
        node = self.nodes.get(key)
        return "" if node is None else node.text()

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty when it is absent."""
        node = self.nodes.get(key)
        return () if node is None else tuple(item.text() for item in node.items())

    def word(self, key: str, default: str, *allowed: str) -> str:
        """One of the words; ``default`` when it is absent or empty."""
        node = self.nodes.get(key)
        return node.word(*allowed) if node is not None and node.text() else default

    def whole_number(self, key: str) -> int:
        """0 when it is absent."""
        node = self.nodes.get(key)
        return 0 if node is None else node.whole_number()

    def duration(self, key: str) -> float:
        """In seconds; 0 when it is absent."""
        node = self.nodes.get(key)
        return 0.0 if node is None else node.duration()


def read_document(text: str) -> Node:
    """The one document of ``text``. Raises ``BundleInvalid``; ``ImportError`` without PyYAML."""
    import yaml

    if len(text) > _LARGEST_CHARACTERS:
        raise BundleInvalid(
            f"{len(text)} characters are too many for a bundle; {_LARGEST_CHARACTERS} at most"
        )
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise BundleInvalid(f"{where}not YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise BundleInvalid(
            f"line {line}: not YAML: the character U+{error.character:04X} must not stand in it"
        ) from None
    except yaml.YAMLError as error:
        raise BundleInvalid(f"not YAML: {error}") from None
    except RecursionError:
        raise BundleInvalid("not YAML that can be read: it is nested too deep") from None
    if node is None or Node(node, "").absent:
        raise BundleInvalid("line 1: the bundle says nothing; an empty text removes a policy")
    if _is_vast(node):
        raise BundleInvalid(
            f"the bundle has more than {_MOST_VALUES} values, with those that aliases repeat"
        )
    return Node(node, "")


def _is_vast(document: Any) -> bool:
    """Whether it stands for more values than there may be; one that contains itself does."""
    count, left = 0, [document]
    while left and count <= _MOST_VALUES:
        node = left.pop()
        count += 1
        if node.id == "sequence":
            left += node.value
        elif node.id == "mapping":
            left += chain.from_iterable(node.value)
    return count > _MOST_VALUES
