"""How a command fails: a line that says what happened and what to do next, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ..errors import APIError, NetworkError, NotFoundError, RebunoError, UnauthorizedError
from .printing import plain, short

__all__ = ["FAILED", "MISUSED", "BadUsage", "Refused", "told"]

FAILED, MISUSED = 1, 2

_SERVER_ERROR = 500
_NO_KERNEL = "(is it a Rebuno kernel that --kernel or $REBUNO_URL names?)"


class BadUsage(Exception):
    """The command cannot mean anything as it was given."""


class Refused(Exception):
    """What was given cannot be used; each argument is a line of the message."""


def told(command: str, work: Callable[[], int | None], *, listed_by: str = "") -> int:
    """The exit code of ``work``, whose failures are told on the standard error.

    ``command``: its name. ``listed_by``: the command that lists what there is.
    """
    try:
        return work() or 0
    except BrokenPipeError:
        raise
    except BadUsage as error:
        return _end(command, [str(error)], MISUSED)
    except Refused as error:
        return _end(command, error.args, FAILED)
    except UnicodeEncodeError as error:
        return _end(command, [f"{error.object!r} is no text in UTF-8"], MISUSED)
    except (RebunoError, OSError) as error:
        return _end(command, [_said(error, listed_by)], FAILED)


def _end(command: str, lines: list[str] | tuple[str, ...], code: int) -> int:
    print(f"rebuno-sync {command}:", "\n".join(map(plain, lines)), file=sys.stderr)
    return code


def _said(error: Exception, listed_by: str) -> str:
    if isinstance(error, NotFoundError) and listed_by:
        return f"{error.message}; `rebuno-sync {listed_by}` shows what there is"
    if isinstance(error, UnauthorizedError):
        return (
            "the kernel does not accept this token; give the kernel's own, or an API key of it,"
            " with --token or $REBUNO_API_KEY"
        )
    if isinstance(error, APIError):
        without_envelope = error.code == APIError.code and error.status_code < _SERVER_ERROR
        return f"{short(error.message)} {_NO_KERNEL}" if without_envelope else error.message
    if isinstance(error, NetworkError):
        text = str(error)
        return (
            f"{text}, here --kernel URL" if text.endswith("REBUNO_URL") else f"{text} {_NO_KERNEL}"
        )
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
