"""One execution that makes every kind of call of one client; then cancels, on ``cancels``."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from clients import CLIENTS, EVERYWHERE
from support.children import arguments, say
from support.provider_server import Provider, held, plain
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import llm
from rebuno_sync.kernel import Kernel

given = arguments()
name, url = given["client"], given["url"]


def handler() -> None:
    calls = CLIENTS[name](url)
    say({call: make("Hello.") for call, make in calls.items()})
    say({"after an error": calls["plain"]("Fail first.")})
    say({"held": calls["plain"]("Hold.")})


def seconds_to_end(
    kernel: Kernel, call: Callable[[], object], is_waiting: Callable[[], Any]
) -> float:
    """How long a handler takes to end that is in ``call`` when its execution is cancelled."""
    outcomes: list[BaseException] = []

    def run() -> None:
        try:
            rebuno.run(call, key="cancelled", agent="cancels", kernel=kernel)
        except BaseException as error:
            outcomes.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(is_waiting, "the call")
    [execution] = kernel.list(agent_id="cancels", status="running").executions
    began = time.monotonic()
    kernel.cancel(execution.id)
    thread.join(20)
    took = time.monotonic() - began
    assert [type(error).__name__ for error in outcomes] == ["ExecutionCancelled"], outcomes
    return took


with Kernel(given["db"]) as kernel, contextlib.ExitStack() as stack:
    if name in EVERYWHERE:
        stack.enter_context(llm.record_all())
    result = rebuno.run(handler, key="calls", agent="calls", kernel=kernel)
    [execution] = kernel.list(agent_id="calls").executions
    for step in kernel.list_steps(execution.id):
        used = step.usage and [step.usage.input_tokens, step.usage.output_tokens]
        say([step.kind, step.target, step.status, used])
    if given["cancels"]:
        release = threading.Event()
        provider = stack.enter_context(Provider())
        provider.answer(held(release, plain({})))
        plain_call = CLIENTS[name](provider.url)["plain"]
        took = seconds_to_end(kernel, lambda: plain_call("Never."), lambda: provider.requests)
        release.set()
        say({"cancelled": [took, len(provider.requests)]})
