"""Every error and every signal of the package.

::

    BaseException
    └── Signal                      unwinds one attempt; never reaches your code's caller
        ├── Blocked
        ├── Terminated
        ├── LeaseSuperseded
        └── Interrupted
    Exception
    └── RebunoError
        ├── NetworkError            theirs: the kernel could not be reached, or its answer was lost
        ├── StorageError            theirs: the embedded kernel's file cannot be used
        ├── APIError                the kernel answered with an error (``code``, ``status_code``)
        │   ├── ValidationError
        │   ├── UnauthorizedError
        │   ├── ForbiddenError
        │   ├── NotFoundError
        │   ├── ConflictError
        │   └── PolicyError         (``rule_id``)
        ├── RateLimited
        ├── ToolError               the effect's: a body failed (``tool_id``, ``step_id``)
        │   └── StepTimeout         it did not end in its time
        ├── CheckpointUnavailable   from a driver: what it is to restore a resource from is gone
        ├── CodeChanged             yours: the handler left what was recorded, under ``strict``
        ├── NoActiveExecution       yours: an effect outside an execution (also a RuntimeError)
        ├── ExecutionFailed         from ``run()`` and ``wait()``
        └── ExecutionCancelled      from ``run()`` and ``wait()``

A class's docstring is its message when it is raised without one. Every class survives ``pickle``.
"""

from __future__ import annotations

import re

__all__ = [
    "APIError",
    "Blocked",
    "CheckpointUnavailable",
    "CodeChanged",
    "ConflictError",
    "ExecutionCancelled",
    "ExecutionFailed",
    "ForbiddenError",
    "Interrupted",
    "LeaseSuperseded",
    "NetworkError",
    "NoActiveExecution",
    "NotFoundError",
    "PolicyError",
    "RateLimited",
    "RebunoError",
    "Signal",
    "StepTimeout",
    "StorageError",
    "Terminated",
    "ToolError",
    "UnauthorizedError",
    "ValidationError",
    "api_error",
    "failure_reason",
]


def _message_of(cls: type[BaseException], message: str) -> str:
    return message or (cls.__doc__ or cls.__name__).partition("\n")[0]


class Signal(BaseException):
    """This attempt of the execution is over."""

    def __init__(self, message: str = "") -> None:
        super().__init__(_message_of(type(self), message))

    def again(self) -> Signal:
        """A fresh copy: one instance raised in two threads would mix their tracebacks."""
        return type(self)(str(self))


class Blocked(Signal):
    """The execution waits; it goes on in a later dispatch."""


class Terminated(Signal):
    """The execution has already ended."""


class LeaseSuperseded(Signal):
    """This attempt does not hold the lease of its execution any more."""


class Interrupted(Signal):
    """The kernel's answer was lost, so this attempt stops here and the next one replays.

    ``code_changed``: whether nothing was lost, and a strict attempt stops at changed code.
    """

    def __init__(self, message: str = "", code_changed: bool = False) -> None:
        super().__init__(message)
        self.code_changed = code_changed

    def again(self) -> Interrupted:
        return Interrupted(str(self), self.code_changed)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.code_changed), self.__dict__


class RebunoError(Exception):
    """Something went wrong in rebuno_sync."""

    def __init__(self, message: str = "") -> None:
        super().__init__(_message_of(type(self), message))


class NetworkError(RebunoError):
    """The kernel could not be reached, or its answer was lost.

    ``repeatable``: whether the same call may be made again without a danger of doing it twice,
    because nothing was sent or the kernel recognises the request.
    """

    def __init__(self, message: str = "", repeatable: bool = False) -> None:
        super().__init__(message)
        self.repeatable = repeatable

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.args[0], self.repeatable), self.__dict__


class StorageError(RebunoError):
    """The embedded kernel's file cannot be used.

    ``final``: whether asking again is of no use, because the kernel was closed.
    """

    def __init__(self, message: str = "", final: bool = False) -> None:
        super().__init__(message)
        self.final = final

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.args[0], self.final), self.__dict__


class APIError(RebunoError):
    """The kernel answered with an error."""

    code = "internal_error"
    status_code = 500

    def __init__(self, message: str = "", code: str = "", status_code: int = 0) -> None:
        super().__init__(message)
        self.message: str = self.args[0]
        self.code = code or type(self).code
        self.status_code = status_code or type(self).status_code

    def __str__(self) -> str:
        words = self.code.replace("_", " ")
        usual = _CLASS_OF_CODE.get(self.code, APIError).status_code
        status = "" if self.status_code == usual else f" (HTTP {self.status_code})"
        # A kernel's message begins with words for its code (protocol.md 1.2).
        told = self.message.startswith((words, _WORDS_OF_CODE.get(self.code, words)))
        return f"{self.message}{status}" if told else f"{words}: {self.message}{status}"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.code, self.status_code), self.__dict__


class ValidationError(APIError):
    """The kernel refused the request as malformed."""

    code = "validation_error"
    status_code = 400


class UnauthorizedError(APIError):
    """The kernel does not accept these credentials."""

    code = "unauthorized"
    status_code = 401


class ForbiddenError(APIError):
    """These credentials do not allow that."""

    code = "forbidden"
    status_code = 403


class NotFoundError(APIError):
    """The kernel knows nothing by that name."""

    code = "not_found"
    status_code = 404


class ConflictError(APIError):
    """The request does not fit the present state."""

    code = "conflict"
    status_code = 409


class PolicyError(APIError):
    """A policy denied the effect."""

    code = "policy_denied"
    status_code = 403

    def __init__(self, message: str = "", rule_id: str = "") -> None:
        super().__init__(message)
        self.rule_id = rule_id

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.rule_id), self.__dict__


class RateLimited(RebunoError):
    """A rate limit refused the effect."""


class ToolError(RebunoError):
    """The body of an effect failed.

    ``tool_id`` is the step's target and ``step_id`` its id in the kernel. ``error_type`` is the
    qualified name of the exception that the body raised and ``traceback`` its text, both as
    recorded; ``__cause__`` is that exception where it can be rebuilt from the record. ``reason``
    is the kernel's word where it failed the step itself, such as ``indeterminate``.
    """

    def __init__(
        self,
        message: str = "",
        tool_id: str = "",
        step_id: str = "",
        error_type: str = "",
        traceback: str = "",
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.message: str = self.args[0]
        self.tool_id = tool_id
        self.step_id = step_id
        self.error_type = error_type
        self.traceback = traceback
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.tool_id}: {self.message}" if self.tool_id else self.message

    def __reduce__(self) -> tuple[object, ...]:
        arguments = (self.message, self.tool_id, self.step_id, self.error_type, self.traceback)
        return type(self), arguments, self.__dict__


class StepTimeout(ToolError):
    """The body of an effect ran for longer than its timeout."""


class NoActiveExecution(RebunoError, RuntimeError):
    """An effect was called outside an execution."""


class CheckpointUnavailable(RebunoError):
    """The captured state of a resource is gone."""


class CodeChanged(RebunoError):
    """The handler no longer does what earlier attempts of the execution recorded.

    Raised by ``run(strict=True)``. Nothing that was recorded is lost: with the code corrected, the
    same key resumes.
    """

    def __init__(self, message: str = "", execution_id: str = "") -> None:
        super().__init__(message)
        self.execution_id = execution_id

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.args[0], self.execution_id), self.__dict__


class _Ended(RebunoError):
    def __init__(self, message: str = "", execution_id: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.execution_id = execution_id
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.args[0], self.execution_id, self.reason), self.__dict__


class ExecutionFailed(_Ended):
    """The execution failed."""


class ExecutionCancelled(_Ended):
    """The execution was cancelled."""


_CLASS_OF_CODE: dict[str, type[APIError]] = {
    "validation_error": ValidationError,
    "unauthorized": UnauthorizedError,
    "forbidden": ForbiddenError,
    "not_found": NotFoundError,
    "conflict": ConflictError,
    "execution_terminal": ConflictError,
    "lease_superseded": ConflictError,
}

_WORDS_OF_CODE = {"lease_superseded": "dispatch lease superseded"}


def api_error(code: str, message: str, status_code: int, rule_id: str = "") -> APIError:
    """The error of a kernel's envelope (protocol.md 1.2, 13.3)."""
    if code == "policy_denied":
        return PolicyError(message, rule_id)
    return _CLASS_OF_CODE.get(code, APIError)(message, code, status_code)


def failure_reason(error: BaseException) -> str:
    """The text that an execution's failure carries for ``error`` (protocol.md 13.7)."""
    if isinstance(error, PolicyError):
        reason = error.message
        return reason if re.fullmatch(r"[a-z0-9_]+", reason) else f"policy_denied: {reason}"
    if isinstance(error, RateLimited):
        return str(error)
    if isinstance(error, ToolError):
        return f"tool_error: {error}"
    text = error.message if isinstance(error, APIError) else str(error)
    return f"agent_error: {type(error).__name__}: {text}"
