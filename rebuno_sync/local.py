"""``run``: a handler and the embedded kernel joined in one process."""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, cast

from .agent import Outcome, OutcomeStatus, dispatch
from .binding import Binding, InputInvalid
from .canonical import canonicalize
from .clock import SYSTEM
from .context import ancestors
from .endings import PAGE, ended, why_blocked
from .errors import CodeChanged, ConflictError, ExecutionFailed, StorageError, api_error
from .heartbeat import RENEWER, Lease
from .kernel import Kernel
from .kernel.dispatches import Claim
from .kernel.embedded import DEFAULT_PATH
from .kernel.identity import args_hash
from .naming import module_name
from .types import Execution, ExecutionStatus
from .webhook import Delivery

__all__ = ["run"]

R = TypeVar("R")

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
"""How often whoever waits for another process's attempt looks whether that one still lives."""


def run(
    handler: Callable[..., R],
    input: Any = None,
    *,
    key: str | None = None,
    agent: str | None = None,
    kernel: Kernel | None = None,
    timeout: float | None = None,
    strict: bool = False,
    retry_failed: bool = False,
) -> R:
    """Run a handler durably in this process and return its output.

    ``input``: JSON, or values that the handler's annotations describe. ``key``: names the
    execution; run again with the same key, it resumes where it was, or returns what it returned.
    Without one, the execution is a fresh one. ``agent``: the namespace of keys,
    ``module.qualname`` of the handler unless given. ``kernel``: the embedded kernel; by default
    the one whose file ``REBUNO_DB`` names (``.rebuno/kernel.db``). ``timeout``: seconds to wait
    while another process runs this execution; ``TimeoutError`` after that. ``strict``: whether
    ``CodeChanged`` is raised before the first new step when recorded ones were not met again.
    ``retry_failed``: whether an execution of the key that has failed is tried again, as a fork
    that takes over the key. What succeeded replays, and what it failed of runs again if it may;
    an ``at_most_once`` effect replays its failure, or that its outcome is unknown.

    Raises ``ExecutionFailed`` or ``ExecutionCancelled`` when the execution ended so, also when it
    had before; ``ConflictError`` when the key was used with another input, or names an execution
    that this call is in; ``ValidationError`` for an input that the handler does not accept;
    ``StorageError`` when the file cannot be used.
    """
    binding = Binding(handler)
    if retry_failed and key is None:
        raise ValueError("retry_failed=True needs the key of the execution that failed: key=...")
    for name, text in (("key", key), ("agent", agent)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name} must be a text, not {text!r}; str(...) of an id will do")
    if around := ancestors():
        around[0].check()  # A run within an execution that is over starts nothing.
    host = _Host(binding, agent or _agent_name(handler), kernel or _default_kernel(), strict)
    return cast(R, host.run(input, key, timeout, retry_failed=retry_failed))


class _Host:
    def __init__(self, binding: Binding, agent_id: str, kernel: Kernel, strict: bool) -> None:
        self._binding = binding
        self._agent_id = agent_id
        self._kernel = kernel
        self._strict = strict

    def run(self, input: Any, key: str | None, timeout: float | None, *, retry_failed: bool) -> Any:
        execution, claim = self._find_or_start(input, key)
        if retry_failed and key is not None and execution.status is ExecutionStatus.FAILED:
            execution, claim = self._kernel.retry(
                self._agent_id, key, execution.id, holder=threading.current_thread()
            )
            _log.info("execution %s retries what %s failed of", execution.id, execution.forked_from)
        here = {context.id for context in ancestors()} | _running_here()
        if execution.id in here:
            raise ConflictError(
                f"conflict: run(key={key!r}) was called inside the execution that has this key"
                f" ({execution.id}); it would wait for itself. Use another key."
            )
        try:
            return self._finish(execution, claim, timeout)
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(_how_to_go_on(execution.id, key))
            raise

    def _find_or_start(self, input: Any, key: str | None) -> tuple[Execution, Claim | None]:
        input_json = self._binding.encode_input(input)
        known = None if key is None else self._kernel.find(self._agent_id, key)
        claim: Claim | None = None
        if known is None:
            try:
                self._binding.refuse_dropped(input_json)
                self._binding.bind(input_json)
            except InputInvalid as error:
                raise api_error("validation_error", f"input_invalid: {error}", 400) from error
            known, claim = self._kernel.start(
                self._agent_id,
                json.loads(input_json),
                idempotency_key=key,
                holder=threading.current_thread(),
            )
        if not _has_input(known, input_json):
            if claim is not None:
                self._kernel.agent.release(claim.lease)
            raise ConflictError(
                f"conflict: key {key!r} of {self._agent_id} was used with another input"
                f" (execution {known.id}); use a key for each input"
            )
        return known, claim

    def _finish(self, execution: Execution, claim: Claim | None, timeout: float | None) -> Any:
        """Run the execution's handler, or wait for whoever runs it, until it has ended."""
        started = SYSTEM.monotonic()
        failure: BaseException | None = None
        begun, earlier = False, execution.status.terminal
        while True:
            mark = self._kernel.change_mark()
            if claim is None:
                execution = self._kernel.get(execution.id)
                if execution.status.terminal:
                    return self._result(execution, failure, earlier=earlier)
                if execution.status is not ExecutionStatus.BLOCKED:
                    claim = self._claim(execution.id, begun=begun)
            if claim is not None:
                outcome = self._dispatch(claim)
                claim, begun, failure = None, True, outcome.error
                if outcome.status is OutcomeStatus.COMPLETED:
                    return outcome.output
                if isinstance(failure, CodeChanged):
                    raise failure
                if outcome.status is OutcomeStatus.BLOCKED and (asked := self._asked(execution)):
                    _log.warning("execution %s waits for approval %s", execution.id, asked)
                continue
            waited = SYSTEM.monotonic() - started
            if timeout is not None and waited >= timeout:
                raise self._still_open(execution, timeout)
            left = 1.0 if timeout is None else timeout - waited
            if execution.status is ExecutionStatus.RUNNING:  # Nobody writes down that he has died.
                left = min(left, _LOOK_SECONDS)
            self._kernel.wait_for_change(mark, left, execution.id)

    def _still_open(self, execution: Execution, timeout: float) -> TimeoutError:
        asked = self._asked(execution)
        waits = f"somebody has to grant or deny approval {asked}"
        other = "another thread or process runs it, or its next attempt is not due yet"
        if execution.status is ExecutionStatus.BLOCKED:
            other = why_blocked(lambda seen: self._kernel.events(execution.id, seen, PAGE))
        return TimeoutError(
            f"execution {execution.id} of {self._agent_id} is still {execution.status} after"
            f" {timeout} s: {waits if asked else other}. It goes on without this call"
        )

    def _asked(self, execution: Execution) -> str:
        """The approvals that it waits for, in words."""
        return ", ".join(
            f"{it.id} ({it.target})"
            for it in self._kernel.list_approvals()
            if it.execution_id == execution.id
        )

    def _dispatch(self, claim: Claim) -> Outcome:
        lease = Lease(
            claim.lease,
            claim.lease_seconds,
            accepted_at=claim.at,
            measured_on=self._kernel.monotonic,
        )
        self._kernel.watch_lease(lease.key, lambda: RENEWER.hurry(lease))
        here = Delivery(lease, thread=threading.current_thread())
        lease.on_end(here.told_to_stop)
        try:
            return dispatch(
                self._binding,
                self._kernel.agent,
                lease,
                strict=self._strict,
                resumed_by_hand=True,
            )
        finally:
            here.ended.set()
            if lease.left_to_run_out:
                self._kernel.leave_claim(claim)

    def _claim(self, execution_id: str, *, begun: bool) -> Claim | None:
        try:
            return self._kernel.claim(execution_id, holder=threading.current_thread())
        except StorageError as error:
            if not begun:
                raise
            # Interrupted in the middle, by a full disk say: it goes on when there is room again.
            _log.warning("execution %s cannot go on yet: %s", execution_id, error)
            return None

    def _result(self, execution: Execution, failure: BaseException | None, *, earlier: bool) -> Any:
        try:
            output = ended(execution).output
        except ExecutionFailed as error:
            if earlier:
                error.add_note("This failure was recorded earlier; the handler was not run now.")
            raise error from failure
        return self._binding.output.decode(json.dumps(output))


def _how_to_go_on(execution_id: str, key: str | None) -> str:
    if key is not None:
        return f"What was recorded is kept: run(..., key={key!r}) goes on from there."
    return (
        f"Execution {execution_id} has no key, so nothing resumes it;"
        f" Kernel().cancel({execution_id!r}) ends it."
    )


def _has_input(execution: Execution, input_json: str) -> bool:
    asked = canonicalize(input_json)
    if execution.input_hash:
        return execution.input_hash == args_hash(asked)
    return canonicalize(json.dumps(execution.input)) == asked


def _running_here() -> set[str]:
    """The executions that this thread runs, also where a context of its own hides them.

    Read from the stack: a list of them would be wrong after an interrupt in the wrong place.
    """
    found = set()
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is _Host._dispatch.__code__:
            claim: Claim = frame.f_locals["claim"]
            found.add(claim.lease.execution_id)
        frame = frame.f_back
    return found


def _agent_name(handler: Callable[..., object]) -> str:
    """``module.qualname``, the same whether the file is run or imported."""
    qualname = getattr(handler, "__qualname__", "")
    if not qualname or "<lambda>" in qualname:
        raise TypeError(f"{handler!r} has no name of its own; give run() agent='...'")
    module = getattr(handler, "__module__", None) or "__main__"
    return f"{module_name(module)}.{qualname}"


_kernels: dict[Path, Kernel] = {}
_opening = threading.Lock()


def _default_kernel() -> Kernel:
    path = Path(os.environ.get("REBUNO_DB") or DEFAULT_PATH).expanduser().absolute()
    with _opening:
        kernel = _kernels.get(path)
        if kernel is None:
            if not _kernels:
                atexit.register(_close_default_kernels)
            kernel = _kernels[path] = Kernel(path)
            _log.info("executions are recorded in %s", path)
        return kernel


def _close_default_kernels() -> None:
    """Leave one file behind: the last to close it takes its log in."""
    for kernel in list(_kernels.values()):
        kernel.close()


def _renew_lock() -> None:
    global _opening
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
