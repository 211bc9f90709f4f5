"""Runs thousands of executions in 64 threads of one process while some are cancelled, lose their
leases or are run by forked children, and says what is left of it in the process.

``answers`` gets a line for each execution: its number, how it ended and what it returned.
"""

from __future__ import annotations

import gc
import itertools
import json
import logging
import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from courses import Course, course
from support.attempts import AGENT, background, claimed, created
from support.children import arguments, say
from support.effect_log import EffectLog
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.agent import Outcome, dispatch
from rebuno_sync.binding import Binding
from rebuno_sync.errors import ConflictError, ExecutionCancelled, StepTimeout, ToolError
from rebuno_sync.heartbeat import Renewer
from rebuno_sync.kernel import Kernel
from rebuno_sync.retrying import RetryPolicy

GIVEN = arguments()
SEED, EXECUTIONS, THREADS = GIVEN["seed"], GIVEN["executions"], GIVEN["threads"]
LOG = EffectLog(GIVEN["log"], synced=False)
PAGE = os.sysconf("SC_PAGE_SIZE")
SHORT_LEASE_SECONDS = 0.5
DIED = 9

kernel = Kernel(GIVEN["db"])
short = Kernel(GIVEN["db"], lease_timeout=SHORT_LEASE_SECONDS)
stopped = Renewer()
stopped.stop()
to_cancel: queue.SimpleQueue[str] = queue.SimpleQueue()
failed: set[str] = set()
taken_over: dict[int, threading.Event] = {}


# -- effects


@rebuno.tool
def write(label: str) -> str:
    return LOG.append(label)


@rebuno.tool(idempotency="at_most_once")
def write_once(label: str) -> str:
    return LOG.append(label)


@rebuno.tool(retries=RetryPolicy(attempts=2, first_wait=0.001))
def write_at_the_second_try(label: str) -> str:
    token = LOG.append(label)
    if label in failed:
        failed.discard(label)
        return token
    failed.add(label)
    raise OSError("the first try fails")


@rebuno.tool(timeout=60.0)
def write_in_time(label: str) -> str:
    return LOG.append(label)


@rebuno.tool(timeout=0.005)
def write_too_slowly(label: str) -> str:
    token = LOG.append(label)
    threading.Event().wait(0.05)
    return token


@rebuno.tool
def hold(label: str, number: int) -> str:
    """In its first attempt, until another attempt has done what there is to do."""
    token = LOG.append(label)
    _hold(number)
    return token


@rebuno.tool(idempotency="at_most_once")
def hold_once(label: str, number: int) -> str:
    token = LOG.append(label)
    _hold(number)
    return token


def _hold(number: int) -> None:
    if rebuno.execution().dispatch_attempt == 1:
        taken_over[number].wait(60)


@rebuno.tool
def die(label: str, parent: int) -> str:
    token = LOG.append(label)
    if os.getpid() != parent:
        os._exit(DIED)
    return token


# -- the handler


def handler(number: int, parent: int) -> list[str]:
    """What its effects returned."""
    mine = course(SEED, number)
    labels = (f"{number}.{n}" for n in itertools.count())
    done: list[str] = []
    asks = mine.fate == "cancelled"
    for effect in (lambda: fateful(mine, number, parent, next(labels)), *effects(mine, labels)):
        if asks and len(done) >= mine.cut:
            to_cancel.put(rebuno.execution().id)
            asks = False
        done += effect()
    if asks:
        to_cancel.put(rebuno.execution().id)
    if mine.fate == "cancelled" and mine.waits:
        rebuno.execution().wait(60)
    return done


def fateful(mine: Course, number: int, parent: int, label: str) -> list[str]:
    match mine.fate:
        case "lost in a body":
            return [hold(label, number)]
        case "lost in a body that runs once":
            try:
                return [hold_once(label, number)]
            except ToolError as error:
                return [error.reason]
        case "lost between bodies":
            _hold(number)
        case "forked and died":
            return [die(label, parent)]
    return [write(label)]


def effects(mine: Course, labels: Any) -> list[Any]:
    label = labels.__next__
    match mine.shape:
        case "plain":
            return [lambda: [write(label())], lambda: [write_once(label())]]
        case "parallel":
            return [lambda: rebuno.parallel([(write, label()), (write_once, label())])]
        case "retried":
            return [lambda: [write_at_the_second_try(label())]]
        case "timed":
            return [lambda: [write_in_time(label())], lambda: [write(label())]]
        case "late":
            return [lambda: [late(label())]]
        case "nap":
            return [lambda: [write(label())], nap, lambda: [write(label())]]
    return [lambda: [local(label())], lambda: [write(label())]]


def late(label: str) -> str:
    try:
        return write_too_slowly(label)
    except StepTimeout:
        return "late"


def nap() -> list[str]:
    rebuno.sleep(0.001)
    return []


def local(label: str) -> str:
    token: str = rebuno.step("local", lambda: LOG.append(label))
    return token


# -- one execution


def one(number: int) -> None:
    input = {"number": number, "parent": os.getpid()}
    fate = course(SEED, number).fate
    if fate.startswith("lost"):
        losing_its_lease(number, input)
    elif fate.startswith("forked"):
        in_a_child(number, input, DIED if fate == "forked and died" else 0)
    else:
        answer(number, input)


def run(number: int, input: dict[str, int]) -> Any:
    return rebuno.run(handler, input, key=str(number), agent=AGENT, kernel=kernel)


def answer(number: int, input: dict[str, int]) -> None:
    """Run it, or find what became of it, and write that down; a second time nothing changes."""
    told = [ended(number, input) for _ in range(2 if number % 10 == 0 else 1)]
    assert told[0] == told[-1], told
    os.write(answers, (json.dumps([number, *told[0]]) + "\n").encode())


def ended(number: int, input: dict[str, int]) -> tuple[str, Any]:
    try:
        return "completed", run(number, input)
    except ExecutionCancelled:
        return "cancelled", None


def losing_its_lease(number: int, input: dict[str, int]) -> None:
    """Nobody renews the lease of the first attempt, which still runs when the second one ends."""
    lease = claimed(short, created(short, input, key=str(number)))
    done = taken_over[number] = threading.Event()

    def first() -> Outcome:
        return dispatch(Binding(handler), short.agent, lease, renewer=stopped)

    with background(first) as thread:
        answer(number, input)
        done.set()
    del taken_over[number]
    assert thread.result().status in ("terminated", "lease_superseded"), thread.result()


def in_a_child(number: int, input: dict[str, int], status: int) -> None:
    """A fork of this busy process runs it; what it leaves undone is done here."""
    pid = os.fork()
    if not pid:
        signal.alarm(60)
        try:
            run(number, input)
        except BaseException as error:
            sys.stderr.write(f"in a child: {error!r}\n")
            os._exit(1)
        os._exit(0)
    left = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert left == status, left
    answer(number, input)


# -- all of them


def work() -> None:
    try:
        while (number := next(numbers)) < EXECUTIONS:
            one(number)
            if number % max(EXECUTIONS // 20, 1) == 0:
                measure()
    except BaseException as error:
        wrong.append(f"execution {number}: {type(error).__name__}: {error}")
        raise


def cancel_what_asks() -> None:
    while execution_id := to_cancel.get():
        with suppress(ConflictError):  # It has ended already.
            kernel.cancel(execution_id)


def measure() -> None:
    """Memory: what is resident, in MB, and the blocks that Python has allocated."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1e6
    memory.append((resident, sys.getallocatedblocks()))


numbers = itertools.count()
wrong: list[str] = []
memory: list[tuple[float, int]] = []
answers = os.open(GIVEN["answers"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

if __name__ == "__main__":
    logging.getLogger("rebuno_sync").setLevel(logging.ERROR)  # Of time-outs there are hundreds.
    kernel.register_agent(AGENT)
    canceller = threading.Thread(target=cancel_what_asks)
    canceller.start()
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    to_cancel.put("")
    canceller.join()
    short.close()
    kernel.close()
    with suppress(AssertionError):
        wait_until(lambda: threading.active_count() == 1, "the end of all threads")
    left = [thread.name for thread in threading.enumerate()]
    say({"wrong": wrong, "memory": memory, "threads": left})
