"""What programs may import from ``rebuno_sync``, and what importing it must not do."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import pytest

import rebuno_sync
from rebuno_sync import errors

PUBLIC = [
    "APIError",
    "Agent",
    "Blocked",
    "CheckpointPolicy",
    "CheckpointUnavailable",
    "Client",
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
    "Outcome",
    "PolicyError",
    "RateLimited",
    "RebunoError",
    "Result",
    "Signal",
    "StepTimeout",
    "StorageError",
    "Terminated",
    "ThreadPoolExecutor",
    "ToolError",
    "UnauthorizedError",
    "ValidationError",
    "carry",
    "errors",
    "execution",
    "failure_reason",
    "http_client",
    "httpx_client",
    "now",
    "parallel",
    "patched",
    "previous",
    "raise_for_refusal",
    "random",
    "resource",
    "run",
    "sleep",
    "step",
    "subagent",
    "tool",
    "types",
    "uuid4",
    "wrap_tool",
]

OF_EXTRAS = {"celery", "django", "flask", "httpx", "httpx2", "mcp", "openai", "rq"}

PROBE = """
import gc, json, sys

seen = []

def watch(event, arguments):
    if event in {"socket.connect", "socket.getaddrinfo", "_thread.start_new_thread"}:
        seen.append(event)

sys.addaudithook(watch)
import rebuno_sync

import socket, threading
json.dump({
    "events": seen,
    "threads": [thread.name for thread in threading.enumerate()],
    "sockets": sum(isinstance(thing, socket.socket) for thing in gc.get_objects()),
    "modules": sorted(sys.modules),
}, sys.stdout)
"""


def test_the_exported_names_are_pinned() -> None:
    assert rebuno_sync.__all__ == PUBLIC


def test_the_exported_names_are_sorted() -> None:
    assert sorted(PUBLIC) == PUBLIC


def test_every_class_of_errors_is_exported() -> None:
    classes = {name for name in errors.__all__ if inspect.isclass(getattr(errors, name))}
    assert classes <= set(PUBLIC)
    assert all(getattr(rebuno_sync, name) is getattr(errors, name) for name in classes)


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_has_a_docstring_of_its_own(name: str) -> None:
    thing = getattr(rebuno_sync, name)
    # A class would otherwise show the docstring of the one it derives from.
    text = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    assert text
    assert text.strip()


@pytest.fixture(scope="module")
def after_import() -> dict[str, list[str]]:
    probe = [sys.executable, "-W", "error", "-c", PROBE]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    report: dict[str, list[str]] = json.loads(done.stdout)
    return report


def test_importing_imports_nothing_of_an_extra(after_import: dict[str, list[str]]) -> None:
    assert OF_EXTRAS & set(after_import["modules"]) == set()


def test_importing_starts_no_thread(after_import: dict[str, list[str]]) -> None:
    assert after_import["threads"] == ["MainThread"]
    assert "_thread.start_new_thread" not in after_import["events"]


def test_importing_connects_to_nothing(after_import: dict[str, list[str]]) -> None:
    """urllib3 binds a socket for a moment to find out whether there is IPv6: none is left open."""
    assert not {"socket.connect", "socket.getaddrinfo"} & set(after_import["events"])
    assert after_import["sockets"] == 0
