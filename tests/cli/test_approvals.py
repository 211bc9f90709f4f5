"""``rebuno-sync approvals``: what waits for a person, and the person's word."""

from __future__ import annotations

import pytest

from rebuno_sync.kernel import Kernel

from .conftest import ask
from .console import Console


def test_what_waits_is_listed_with_the_whole_call_to_decide_about(
    kernel: Kernel, console: Console
) -> None:
    """Who is asked, until when, and what would be done."""
    approval_id = ask(kernel, cents=5)
    listed = console.done("approvals", "list")
    assert all(text in listed for text in (approval_id, "pending", "alice", 'refund {"cents": 5}'))
    shown = console.done("approvals", "show", approval_id)
    for text in ("Refund it?", 'refund {"cents": 5}', "support", "alice", "until"):
        assert text in shown


def test_a_grant_is_recorded_with_who_and_why(kernel: Kernel, console: Console) -> None:
    """The second decision is refused, and told of the first; the step may run."""
    approval_id = ask(kernel)
    said = console.done("approvals", "grant", approval_id, "--as", "alice", "--reason", "good")
    assert said == f"granted {approval_id} as alice\n"
    decided = kernel.get_approval(approval_id)
    assert (decided.status, decided.decided_by, decided.rationale) == ("granted", "alice", "good")
    late = console("approvals", "deny", approval_id, "--as", "alice")
    assert (late.code, late.out) == (1, "")
    assert "already granted by 'alice'" in late.err


def test_a_refusal_is_recorded_too(kernel: Kernel, console: Console) -> None:
    """``--rationale`` is another word for ``--reason``."""
    approval_id = ask(kernel)
    console.done("approvals", "deny", approval_id, "--as", "alice", "--rationale", "too much")
    assert kernel.get_approval(approval_id).status == "denied"
    assert console.json("approvals", "show", approval_id)["rationale"] == "too much"


def test_a_stranger_is_told_who_may_decide_and_how_to_say_so(
    kernel: Kernel, console: Console
) -> None:
    """Unless told otherwise it is the user of the machine who decides."""
    approval_id = ask(kernel)
    refused = console("approvals", "grant", approval_id)
    assert (refused.code, refused.out) == (1, "")
    assert all(text in refused.err for text in ("'operator'", "its approvers are alice", "--as"))
    assert kernel.get_approval(approval_id).status == "pending"


def test_the_list_is_filtered(kernel: Kernel, console: Console) -> None:
    """By status, execution, agent, and by who may decide."""
    first, second = ask(kernel), ask(kernel)
    kernel.deny_approval(first, "alice")
    execution_id = kernel.get_approval(second).execution_id

    def found(*filters: str) -> list[str]:
        return [it["id"] for it in console.json("approvals", "list", *filters)]

    assert found() == [second]
    assert found("--status", "denied") == [first]
    assert set(found("--status", "all")) == {first, second}
    assert found("--execution", execution_id) == [second]
    assert found("--agent", "support") == [second]
    assert found("--agent", "plain") == []
    assert found("--for", "alice") == [second]
    assert found("--for", "bob") == []


def test_nothing_of_an_agent_reaches_the_terminal_as_a_control_character(
    kernel: Kernel, console: Console
) -> None:
    """What is to be decided cannot paint over itself: neither escapes nor marks of direction."""
    approval_id = ask(kernel, order="A\x1b[2J\u202e\r")
    printed = console.done("approvals", "show", approval_id) + console.done("approvals", "list")
    assert all(sign.isprintable() or sign == "\n" for sign in printed)
    assert "\\u202e" in printed


def test_an_approval_that_is_unknown(console: Console) -> None:
    """One line that says so, and no traceback."""
    unknown = "00000000-0000-7000-8000-000000000007"
    for command in ("show", "grant", "deny"):
        said = console("approvals", command, unknown)
        assert (said.code, said.out, said.err.count("\n")) == (1, "", 1)
        assert "`rebuno-sync approvals list` shows what there is" in said.err


@pytest.mark.parametrize("console", ["http"], indirect=True)
def test_a_key_that_may_not_read_executions_decides_all_the_same(
    kernel: Kernel, console: Console
) -> None:
    """It is told what it would need to see the call."""
    approval_id = ask(kernel)
    token = kernel.create_key("deputy", ["approvals:read", "approvals:write"]).token
    console.where[-1] = token
    assert "a key needs executions:read" in console.done("approvals", "show", approval_id)
    console.done("approvals", "grant", approval_id, "--as", "alice")
