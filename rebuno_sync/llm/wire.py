"""What the recorder and the adapters of HTTP libraries say to each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

__all__ = ["Asked", "Received", "Reply", "Stream", "Wire", "is_json", "retry_of"]


class Asked(NamedTuple):
    """A request, as far as it matters. ``body`` is ``None`` where it is not at hand as bytes;
    ``retry`` is what the client says of it (see ``begin_llm``)."""

    url: str
    content_type: str
    body: bytes | None
    retry: bool | None = None


class Received(NamedTuple):
    """What came back, its body decoded (gzip and the like) and still to be read."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    chunks: Iterator[bytes]
    close: Callable[[], None]


class Stream(Protocol):
    """A body that is read as it arrives."""

    def __iter__(self) -> Iterator[bytes]: ...

    def __next__(self) -> bytes: ...

    def close(self) -> None: ...


class Reply(NamedTuple):
    """What the caller gets: the same on a first run and on a replay."""

    status: int
    headers: dict[str, str]
    body: bytes | Stream


class Wire(Protocol):
    """One request of one HTTP library."""

    def send(self, headers: Mapping[str, str]) -> Received:
        """Send it, with headers added that it has not got. Raises as the library does."""

    def error(self, name: str, message: str) -> Exception:
        """The library's error with that class name, or its nearest."""

    def refusal(self, message: str, reply: Reply) -> Reply:
        """A refusal as the provider's clients read it; ``reply`` is how most do."""


def is_json(content_type: str) -> bool:
    """Whether a request with that content type may hold JSON; without one it may."""
    return not content_type or "json" in content_type.lower()


def retry_of(headers: Mapping[str, str]) -> bool | None:
    """What a client's headers (by lower-case name) say of whether it asks again: the count of the
    SDKs of OpenAI and Anthropic, the attempt of Amazon's."""
    count = headers.get("x-stainless-retry-count")
    if count is not None:
        return count != "0"
    attempt = headers.get("amz-sdk-request")
    return None if attempt is None else "attempt=1;" not in attempt + ";"
