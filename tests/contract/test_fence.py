"""The lease fence (protocol.md 5.4): every mutation under every sort of lease."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress

import pytest
from _pytest.mark import ParameterSet

from rebuno_sync.errors import APIError, ValidationError
from rebuno_sync.types import LeaseKey

from .deployments import AGENT, Deployment, Wired
from .moves import call, log, next_attempt, perform, start
from .scenarios import over_http, scenario

Mutation = Callable[[Deployment, LeaseKey, str], object]
"""What an agent does under a lease; the text is the id of an executing step of the execution."""

MUTATIONS: dict[str, Mutation] = {
    "submit": lambda on, lease, _: on.agent.submit(lease, call("new")).decision,
    "submit again": lambda on, lease, _: on.agent.submit(lease, call("open")).decision,
    "submit recorded": lambda on, lease, _: on.agent.submit(lease, call("unmet")).decision,
    "complete_step": lambda on, lease, step: on.agent.complete_step(lease, step, "1").decision,
    "fail_step": lambda on, lease, step: on.agent.fail_step(lease, step, "1").decision,
    "renew": lambda on, lease, _: on.agent.renew([lease])[0].value,
    "complete": lambda on, lease, _: on.agent.complete(lease, "1"),
    "fail": lambda on, lease, _: on.agent.fail(lease, "no"),
    "release": lambda on, lease, _: on.agent.release(lease),
    "release interrupted": lambda on, lease, _: on.agent.release(lease, interrupted=True),
}

LEASES = {
    "valid": lambda on, lease: lease,
    "superseded": lambda on, lease: (next_attempt(on, lease), lease)[1],
    "future": lambda on, lease: lease._replace(attempt=lease.attempt + 1),
    "retired": lambda on, lease: (on.retire(lease), lease)[1],
    "unknown": lambda on, lease: lease._replace(dispatch_id=str(uuid.uuid4())),
    "foreign": lambda on, lease: start(on)._replace(execution_id=lease.execution_id),
    "ended": lambda on, lease: (on.agent.complete(lease, "null"), lease)[1],
    "ended, unknown": lambda on, lease: (
        on.agent.complete(lease, "null"),
        lease._replace(dispatch_id=str(uuid.uuid4())),
    )[1],
    "no execution": lambda on, lease: lease._replace(execution_id=str(uuid.uuid4())),
}

_GONE = "lease_superseded"
_OVER = "execution_terminal"
_NONE = "not_found"

# A decision, what a heartbeat says, an error's code after "!", or None where there is no answer.
EXPECTED: dict[str, list[str | None]] = {
    # lease:               valid       superseded    future        retired       unknown
    #                      foreign     ended         ended,unknown no execution
    "submit":              ["proceed", f"!{_GONE}",  f"!{_GONE}",  f"!{_GONE}",  f"!{_GONE}",
                            f"!{_GONE}", _OVER,      _OVER,        f"!{_NONE}"],
    "submit again":        ["proceed", f"!{_GONE}",  f"!{_GONE}",  f"!{_GONE}",  f"!{_GONE}",
                            f"!{_GONE}", _OVER,      _OVER,        f"!{_NONE}"],
    "submit recorded":     ["replay",  f"!{_GONE}",  f"!{_GONE}",  f"!{_GONE}",  f"!{_GONE}",
                            f"!{_GONE}", _OVER,      _OVER,        f"!{_NONE}"],
    "complete_step":       ["recorded", f"!{_GONE}", f"!{_GONE}",  "recorded",   f"!{_GONE}",
                            f"!{_GONE}", _OVER,      _OVER,        f"!{_NONE}"],
    "fail_step":           ["recorded", f"!{_GONE}", f"!{_GONE}",  "recorded",   f"!{_GONE}",
                            f"!{_GONE}", _OVER,      _OVER,        f"!{_NONE}"],
    "renew":               ["accepted", "superseded", "superseded", "superseded", "superseded",
                            "superseded", "superseded", "superseded", "superseded"],
    "complete":            [None,      f"!{_GONE}",  f"!{_GONE}",  f"!{_GONE}",  f"!{_GONE}",
                            f"!{_GONE}", f"!{_OVER}", f"!{_OVER}", f"!{_NONE}"],
    "fail":                [None,      f"!{_GONE}",  f"!{_GONE}",  f"!{_GONE}",  f"!{_GONE}",
                            f"!{_GONE}", f"!{_OVER}", f"!{_OVER}", f"!{_NONE}"],
    "release":             [None,      f"!{_GONE}",  f"!{_GONE}",  f"!{_GONE}",  f"!{_GONE}",
                            f"!{_GONE}", f"!{_OVER}", f"!{_OVER}", f"!{_NONE}"],
    "release interrupted": [None,      f"!{_GONE}",  f"!{_GONE}",  f"!{_GONE}",  f"!{_GONE}",
                            f"!{_GONE}", f"!{_OVER}", f"!{_OVER}", f"!{_NONE}"],
}  # fmt: skip

RELEASES = ("release", "release interrupted")
"""What only some kernels have (protocol.md 17)."""


def _cases(*, releases: bool) -> list[ParameterSet]:
    return [
        pytest.param(mutation, lease, answer, id=f"{mutation}-{lease}")
        for mutation, answers in EXPECTED.items()
        for lease, answer in zip(LEASES, answers, strict=True)
        if (mutation in RELEASES) is releases
    ]


def _holder(on: Deployment) -> tuple[LeaseKey, str]:
    """A second attempt that has met one of the first one's two results, and its executing step."""
    first = start(on)
    for target in ("met", "unmet"):
        perform(on, first, call(target))
    holder = next_attempt(on, first)
    assert on.agent.submit(holder, call("met")).decision == "replay"
    return holder, on.agent.submit(holder, call("open")).step_id


def test_the_table_is_complete() -> None:
    """Every mutation of the port is in the table."""
    assert EXPECTED.keys() == MUTATIONS.keys()


@scenario("fence")
@pytest.mark.parametrize(("mutation", "sort", "answer"), _cases(releases=False))
def test_every_mutation_is_fenced(
    on: Deployment, mutation: str, sort: str, answer: str | None
) -> None:
    """A mutation gets exactly the answer of the table, and one that is refused changes nothing."""
    _check(on, mutation, sort, answer)


@scenario("release")
@scenario("fence")
@pytest.mark.parametrize(("mutation", "sort", "answer"), _cases(releases=True))
def test_every_release_is_fenced(
    on: Deployment, mutation: str, sort: str, answer: str | None
) -> None:
    """So does giving a lease back."""
    _check(on, mutation, sort, answer)


def _check(on: Deployment, mutation: str, sort: str, answer: str | None) -> None:
    owner, step_id = _holder(on)
    lease = LEASES[sort](on, owner)
    before = (log(on, owner.execution_id), on.operator.list_steps(owner.execution_id))
    try:
        found: object = MUTATIONS[mutation](on, lease, step_id)
    except APIError as error:
        found = f"!{error.code}"
    assert found == answer
    after = (log(on, owner.execution_id), on.operator.list_steps(owner.execution_id))
    if answer not in (None, "proceed", "recorded"):
        assert after == before


@scenario("fence")
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_refused_mutation_leaves_the_holder_alone(on: Deployment, mutation: str) -> None:
    """Whatever an old attempt tries, the present one goes on and completes."""
    old, step_id = _holder(on)
    lease = next_attempt(on, old)
    with suppress(APIError):
        MUTATIONS[mutation](on, old, step_id)
    assert on.agent.renew([lease]) == ["accepted"]
    assert on.lease(lease.execution_id) is None
    assert on.agent.submit(lease, call("open")).decision == "proceed"
    on.agent.complete(lease, '"mine"')
    assert on.operator.get(lease.execution_id).output == "mine"


def test_b06_a_lease_of_another_execution_opens_nothing(on: Deployment) -> None:
    """A dispatch id that is unknown, or another execution's, is superseded for a submit."""
    mine, other = start(on), start(on)
    for lease in (
        mine._replace(dispatch_id=other.dispatch_id),
        mine._replace(dispatch_id=str(uuid.uuid4())),
    ):
        with pytest.raises(APIError) as caught:
            on.agent.submit(lease, call())
        assert (caught.value.code, caught.value.status_code) == ("lease_superseded", 409)
    assert on.operator.list_steps(mine.execution_id) == []
    assert on.operator.list_steps(other.execution_id) == []


@over_http
@pytest.mark.parametrize(
    ("part", "nothing", "header"),
    [("dispatch_id", "", "Rebuno-Dispatch-Id"), ("attempt", 0, "Rebuno-Dispatch-Attempt")],
    ids=["dispatch", "attempt"],
)
def test_b06_a_submit_without_a_lease_is_a_bad_request(
    on: Wired, part: str, nothing: object, header: str
) -> None:
    """Its message names the header. (In process there is no call without a lease.)"""
    lease = start(on)
    partial = lease._replace(**{part: nothing})  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match=header):
        on.signer(AGENT).submit(partial, call())
    assert on.operator.list_steps(lease.execution_id) == []
