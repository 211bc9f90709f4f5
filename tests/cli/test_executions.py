"""``rebuno-sync executions``: listed, shown, followed and ended."""

from __future__ import annotations

import json

import pytest
from support.waiting import wait_until

from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Proposal

from .conftest import ask, begin, step
from .console import Console

UNKNOWN = "00000000-0000-7000-8000-000000000007"


def test_executions_are_listed_page_by_page(kernel: Kernel, console: Console) -> None:
    """The newest first; filters are those of the API."""
    made = [kernel.create("plain", n, idempotency_key=f"k{n}").id for n in range(3)]
    kernel.cancel(made[0])
    page = console.json("executions", "list", "--limit", "2")
    assert [it["id"] for it in page["executions"]] == [made[2], made[1]]
    rest = console.done("executions", "list", "--cursor", page["next_cursor"])
    assert made[0] in rest
    assert "cancelled" in rest
    assert made[1] not in rest
    assert "--cursor" in console.done("executions", "list", "--limit", "2")
    found = console.json("executions", "list", "--status", "running", "--agent", "plain")
    assert [it["idempotency_key"] for it in found["executions"]] == ["k2", "k1"]
    assert console("executions", "list", "--limit", "0").code == 2


def test_an_execution_is_shown_with_its_steps_and_its_log(kernel: Kernel, console: Console) -> None:
    """In the order in which things happened, with what came of them."""
    lease = begin(kernel, "plain")
    for target in ("zebra", "ant"):
        step(kernel, lease, target, {"of": target})
    kernel.agent.complete(lease, '{"sum": 2}')
    shown = console.done("executions", "show", lease.execution_id)
    for text in ('{"order": "A-17"}', '{"sum": 2}', "completed", "execution.completed"):
        assert text in shown
    steps = shown.partition("\nsteps\n")[2].partition("\nevents\n")[0]
    assert steps.index('zebra {"n": 1}') < steps.index('ant {"n": 1}')
    assert '{"of": "ant"}' in steps
    whole = console.json("executions", "show", lease.execution_id)
    assert (whole["status"], whole["output"]) == ("completed", {"sum": 2})
    assert [it["target"] for it in whole["steps"]] == ["zebra", "ant"]
    assert whole["events"][-1]["type"] == "execution.completed"


def test_long_values_are_cut_short_unless_asked_for(kernel: Kernel, console: Console) -> None:
    """``--full`` shows all of them."""
    lease = begin(kernel, "plain")
    step(kernel, lease, "look", "x" * 500)
    assert "x" * 500 not in console.done("executions", "show", lease.execution_id)
    assert "x" * 500 in console.done("executions", "show", lease.execution_id, "--full")


def test_cancelling_ends_it_once(kernel: Kernel, console: Console) -> None:
    """The second time is refused."""
    approval_id = ask(kernel)
    execution_id = kernel.get_approval(approval_id).execution_id
    assert console.done("executions", "cancel", execution_id) == f"cancelled {execution_id}\n"
    assert kernel.get(execution_id).status == "cancelled"
    again = console("executions", "cancel", execution_id)
    assert (again.code, "already cancelled" in again.err) == (1, True)


def test_a_fork_begins_with_what_was_settled(kernel: Kernel, console: Console) -> None:
    """Its id is printed, for the next command."""
    lease = begin(kernel, "plain")
    step(kernel, lease, "look", 1)
    fork = console.done("executions", "fork", lease.execution_id).strip()
    assert [it.target for it in kernel.list_steps(fork)] == ["look"]
    assert kernel.get(fork).forked_from == lease.execution_id
    begun = console("executions", "fork", lease.execution_id, "--at", "999")
    assert (begun.code, "at_seq" in begun.err) == (1, True)


@pytest.mark.parametrize(("end", "code"), [("complete", 0), ("fail", 1), ("cancel", 1)])
def test_watching_ends_with_the_execution(
    kernel: Kernel, console: Console, end: str, code: int
) -> None:
    """Each event is there once, in order, and the status says whether it has completed."""
    lease = begin(kernel, "plain")
    watching = console.start("executions", "watch", lease.execution_id, "--json")
    with watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        step(kernel, lease, "look", 1)
        {
            "complete": lambda: kernel.agent.complete(lease, "1"),
            "fail": lambda: kernel.agent.fail(lease, "no"),
            "cancel": lambda: kernel.cancel(lease.execution_id),
        }[end]()
        rest = [json.loads(line) for line in watching.stdout]
        assert watching.wait(30) == code
    seen = [it["event_seq"] for it in [first, *rest]]
    assert seen == [event.event_seq for event in kernel.events(lease.execution_id)]


def test_what_steps_receive_is_printed_as_it_comes(kernel: Kernel, console: Console) -> None:
    """Under the id of the step; it ends with the execution."""
    lease = begin(kernel, "plain")
    step_id = kernel.agent.submit(lease, Proposal("llm_call", "m", "{}")).step_id
    listening = console.start("executions", "stream", lease.execution_id)
    with listening:
        wait_until(lambda: has_listener(kernel), "the command listening")
        for seq, text in enumerate(["Hello ", "world\n", "\x1b[2J"]):
            kernel.agent.delta(lease, step_id, seq, text)
        assert listening.stdout is not None
        assert listening.stdout.readline() == f"[{step_id[:8]}]\n"
        assert listening.stdout.readline() == "Hello world\n"
        kernel.agent.complete_step(lease, step_id, "1")
        kernel.agent.complete(lease, "1")
        listening.terminate()  # Over HTTP it would look with the next keep-alive.


def has_listener(kernel: Kernel) -> bool:
    rows = kernel.core.store().read(lambda db: db.execute("SELECT 1 FROM listeners").fetchone())
    return rows is not None or kernel.core.deltas.streams > 0


def test_an_execution_that_is_unknown(console: Console) -> None:
    """Every command says so in a line, with the next step."""
    for command in ("show", "cancel", "fork", "watch", "stream"):
        said = console("executions", command, UNKNOWN)
        assert (said.code, said.out, said.err.count("\n")) == (1, "", 1)
        assert "`rebuno-sync executions list` shows what there is" in said.err
