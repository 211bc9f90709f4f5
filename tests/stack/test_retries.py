"""Effects that are tried again: one step, whatever the number of tries."""

from __future__ import annotations

import concurrent.futures
import math
import threading
from datetime import timedelta
from typing import Any

import pytest
from support.attempts import attempt, background, created
from support.faulty_port import FaultyPort
from support.replays import live_and_replayed, only_step
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import ExecutionCancelled, PolicyError, Signal, StepTimeout, ToolError
from rebuno_sync.kernel import Kernel
from rebuno_sync.retrying import RetryPolicy
from rebuno_sync.types import Event

AT_ONCE = RetryPolicy(attempts=4, first_wait=0)


class Busy(Exception):
    """The other side says so before it does anything."""


class Hint(Exception):
    def __init__(self, retry_after: object) -> None:
        super().__init__("later")
        self.retry_after = retry_after


class Failing:
    """A body that fails so many times, then gives its number."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.left = failures
        self.error = error or Busy("not now")
        self.tries = 0

    def __call__(self) -> int:
        self.tries += 1
        if self.left:
            self.left -= 1
            raise self.error
        return self.tries


def retrying_events(kernel: Kernel) -> list[dict[str, Any]]:
    """What the newest execution's log tells of failed tries."""
    return [event.payload for event in events(kernel) if event.type == "step.retrying"]


def has_failed_once(kernel: Kernel) -> bool:
    return bool(kernel.list(limit=1).executions and retrying_events(kernel))


def events(kernel: Kernel) -> list[Event]:
    return kernel.events(kernel.list(limit=1).executions[0].id)


@pytest.mark.parametrize("form", ["tool", "step", "wrap_tool"])
def test_a_failed_effect_is_tried_again(kernel: Kernel, form: str) -> None:
    """It is one step; the handler sees the result of the try that succeeded, on a replay too."""
    body = Failing(2)

    def effect() -> Any:
        if form == "step":
            return rebuno.step("flaky", body, retries=AT_ONCE)
        if form == "tool":
            return rebuno.tool("flaky", retries=AT_ONCE)(lambda: body())()
        return rebuno.wrap_tool("flaky", lambda _: body(), retries=AT_ONCE)()

    assert live_and_replayed(kernel, effect) == (3, 3)
    assert body.tries == 3
    assert only_step(kernel).status == "succeeded"
    assert [told["attempt"] for told in retrying_events(kernel)] == [1, 2]


def test_a_number_of_retries_counts_the_tries_after_the_first(kernel: Kernel) -> None:
    """With ``retries=1`` a body runs twice, and the second failure is the step's."""
    body = Failing(9)
    live, replayed = live_and_replayed(kernel, lambda: rebuno.step("flaky", body, retries=1))
    assert isinstance(live, ToolError)
    assert isinstance(live.__cause__, Busy)
    assert str(live) == str(replayed)
    assert body.tries == 2
    [told] = retrying_events(kernel)
    assert told["error"]["message"] == "not now"
    assert 0.375 <= told["retry_in"] <= 0.5


def test_only_named_exceptions_are_answered_with_another_try(kernel: Kernel) -> None:
    """Any other fails the step at once."""
    body = Failing(1, ValueError("no use"))
    policy = RetryPolicy(attempts=3, first_wait=0, on=(Busy, OSError))
    live, _ = live_and_replayed(kernel, lambda: rebuno.step("flaky", body, retries=policy))
    assert isinstance(live.__cause__, ValueError)
    assert body.tries == 1


def test_a_result_that_cannot_be_stored_is_not_tried_again(kernel: Kernel) -> None:
    """The body ran: its failure is what became of the value."""
    ran: list[int] = []

    def lock() -> Any:
        ran.append(1)
        return threading.Lock()

    live, _ = live_and_replayed(kernel, lambda: rebuno.step("lock", lock, retries=AT_ONCE))
    assert isinstance(live, ToolError)
    assert len(ran) == 1


@pytest.mark.parametrize(
    ("told", "wait"),
    [
        (0.01, 0.01),
        (0, 0.0),
        (timedelta(milliseconds=20), 0.02),
        (" 0 ", 0),
        *((bad, 0.05) for bad in (None, "soon", "-1", True, -1, math.nan)),
    ],
)
def test_an_exception_may_say_itself_how_long_to_wait(
    kernel: Kernel, told: object, wait: float
) -> None:
    """By its ``retry_after``: seconds (as text too) or a ``timedelta``; else it says nothing."""
    policy = RetryPolicy(attempts=2, first_wait=0.05, jitter=0)
    body = Failing(1, Hint(told))
    rebuno.run(lambda: rebuno.step("hint", body, retries=policy), agent="a", kernel=kernel)
    assert [told["retry_in"] for told in retrying_events(kernel)] == [pytest.approx(wait)]


def test_waits_grow_up_to_the_longest() -> None:
    """Each is ``factor`` times the one before; chance takes off a share, never adds."""
    policy = RetryPolicy(attempts=2000, first_wait=1, factor=2, longest_wait=5, jitter=0.5)
    waits = [policy.wait_after(n, Busy(), 0.0) for n in (1, 2, 3, 4, 1999)]
    assert waits == [1, 2, 4, 5, 5]
    assert policy.wait_after(3, Busy(), 0.5) == 3
    assert policy.wait_after(2000, Busy(), 0.0) is None


def test_a_signal_is_not_answered_with_another_try(kernel: Kernel) -> None:
    """A nested effect that finds the execution cancelled ends the attempt, through any policy."""
    tries: list[int] = []

    def body() -> None:
        tries.append(1)
        kernel.cancel(rebuno.execution().id)
        rebuno.step("nested", lambda: None)

    with pytest.raises(rebuno.ExecutionCancelled):
        rebuno.run(lambda: rebuno.step("outer", body, retries=AT_ONCE), agent="a", kernel=kernel)
    assert len(tries) == 1


def test_an_effect_that_a_timeout_left_running_is_met_by_the_next_try(kernel: Kernel) -> None:
    """It happens, so it is waited for and not begun again beside itself."""
    charges, timed_out = [], threading.Event()

    @rebuno.tool(idempotency="at_most_once")
    def charge() -> int:
        charges.append(1)
        assert timed_out.wait(20)
        return len(charges)

    @rebuno.tool(timeout=0.3, retries=RetryPolicy(attempts=50, first_wait=0))
    def order() -> int:
        return charge()

    def outcome() -> int:
        return rebuno.run(order, agent="a", kernel=kernel)

    with background(outcome) as running:
        wait_until(lambda: has_failed_once(kernel), "a first try that timed out")
        timed_out.set()
        assert running.result() == 1
    assert charges == [1]


def test_a_failure_of_what_a_timeout_left_running_is_tried_again(kernel: Kernel) -> None:
    """As any failed effect in a body that is tried again."""
    calls, timed_out = [], threading.Event()

    @rebuno.tool
    def fetch() -> int:
        calls.append(1)
        if len(calls) == 1:
            assert timed_out.wait(20)
            raise Busy("too much")
        return len(calls)

    @rebuno.tool(timeout=0.3, retries=RetryPolicy(attempts=50, first_wait=0))
    def order() -> int:
        return fetch()

    with background(lambda: rebuno.run(order, agent="a", kernel=kernel)) as running:
        wait_until(lambda: has_failed_once(kernel), "a first try that timed out")
        timed_out.set()
        assert running.result() == 2


def test_a_cancel_ends_the_wait_for_an_effect_that_a_timeout_left_running(kernel: Kernel) -> None:
    """Whatever that effect does."""
    begun, release = threading.Event(), threading.Event()
    waits, woken = threading.Event(), threading.Event()

    @rebuno.tool(idempotency="at_most_once")
    def charge() -> None:
        begun.set()
        release.wait(20)

    tries: list[int] = []

    @rebuno.tool(timeout=5, retries=AT_ONCE)
    def order() -> None:
        tries.append(1)
        if len(tries) == 1:
            pool.submit(charge)
            assert begun.wait(20)
            raise Busy("this try is over")
        waits.set()
        try:
            charge()
        except Signal:
            woken.set()
            raise

    with (
        rebuno.ThreadPoolExecutor(1) as pool,
        background(lambda: rebuno.run(order, agent="a", kernel=kernel)) as running,
    ):
        assert waits.wait(20)
        kernel.cancel(kernel.list(limit=1).executions[0].id)
        assert woken.wait(1)
        release.set()
        with pytest.raises(ExecutionCancelled):
            running.result()


def test_identical_effects_in_threads_give_the_same_in_every_try(kernel: Kernel) -> None:
    """In whatever order they ended; so what is done with their results is done once."""
    second_is_made = threading.Event()
    numbers: list[int] = []
    labels: list[int] = []
    tries: list[list[int]] = []

    @rebuno.tool
    def create(what: str) -> int:
        numbers.append(len(numbers))
        if numbers[-1] == 0:
            assert second_is_made.wait(20)
            return 0
        return 1

    @rebuno.tool(idempotency="at_most_once")
    def label(number: int) -> None:
        labels.append(number)

    @rebuno.tool(retries=AT_ONCE)
    def order() -> list[int]:
        with rebuno.ThreadPoolExecutor(2) as pool:
            one, two = pool.submit(create, "x"), pool.submit(create, "x")
            concurrent.futures.wait([one, two], return_when=concurrent.futures.FIRST_COMPLETED)
            second_is_made.set()
            made = [one.result(), two.result()]
        label(made[0])
        tries.append(made)
        if len(tries) < 4:
            raise Busy("again")
        return made

    given = rebuno.run(order, agent="a", kernel=kernel)
    assert tries == [given] * 4
    assert labels == given[:1]


def test_a_refusal_of_a_nested_effect_is_not_answered_with_another_try(kernel: Kernel) -> None:
    """It passes through: what policy refuses once it refuses again."""
    tries: list[int] = []
    reasons: list[str] = []

    def charge() -> None:
        tries.append(0)
        raise KeyboardInterrupt  # It is cut down: whether it has happened is unknown.

    def body() -> None:
        tries.append(1)
        rebuno.step("charge", charge, idempotency="at_most_once")

    def handler() -> str:
        try:
            rebuno.step("charge", charge, idempotency="at_most_once")
        except ToolError as error:
            reasons.append(error.reason)
        try:
            return rebuno.step("outer", lambda: str(body()), retries=AT_ONCE)
        except PolicyError:
            return "refused"

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler, key="k", agent="a", kernel=kernel)
    assert rebuno.run(handler, key="k", agent="a", kernel=kernel) == "refused"
    assert reasons == ["indeterminate"]
    assert tries == [0, 1]


# -- effects inside a body that is tried again


def test_what_succeeded_in_a_failed_try_is_not_done_again(kernel: Kernel) -> None:
    """The next try is given its result, as after a crash; what failed there is a new call."""
    charges: list[int] = []
    ships: list[int] = []
    got: list[list[str]] = []

    @rebuno.tool(idempotency="at_most_once")
    def charge(cents: int) -> str:
        charges.append(cents)
        return f"receipt-{len(charges)}"

    @rebuno.tool
    def ship(receipt: str) -> str:
        ships.append(1)
        if len(ships) < 3:
            raise Busy("no lorry")
        return f"shipped {receipt}"

    @rebuno.tool(retries=AT_ONCE)
    def order() -> str:
        return ship(charge(5))

    def handler() -> list[str]:
        got.append([order(), charge(5)])
        if len(got) == 1:
            raise KeyboardInterrupt
        return got[-1]

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler, key="k", agent="a", kernel=kernel)
    # The places of the calls in all tries are behind us: an equal call is another one.
    expected = ["shipped receipt-1", "receipt-2"]
    assert rebuno.run(handler, key="k", agent="a", kernel=kernel) == expected
    assert got == [expected] * 2
    assert (charges, len(ships)) == ([5, 5], 3)


def test_equal_calls_in_a_body_keep_their_own_results_over_its_tries(kernel: Kernel) -> None:
    """In their order; calls beyond those of the try before are new."""
    numbers = iter(range(10))
    tries: list[list[int]] = []

    def draw() -> int:
        return next(numbers)

    def body() -> list[int]:
        tries.append([rebuno.step("draw", draw) for _ in range(len(tries) + 2)])
        if len(tries) < 3:
            raise Busy
        return tries[-1]

    rebuno.run(lambda: rebuno.step("outer", body, retries=AT_ONCE), agent="a", kernel=kernel)
    assert tries == [[0, 1], [0, 1, 2], [0, 1, 2, 3]]


def test_what_a_try_did_not_ask_for_is_kept_for_the_next(kernel: Kernel) -> None:
    """A body that takes another way in one try does not pay twice in the one after."""
    paid: list[int] = []
    tries: list[int] = []

    def body() -> str:
        tries.append(1)
        if len(tries) != 2:
            rebuno.step("pay", lambda: paid.append(1))
        if len(tries) < 3:
            raise Busy
        return "done"

    rebuno.run(lambda: rebuno.step("outer", body, retries=AT_ONCE), agent="a", kernel=kernel)
    assert len(paid) == 1


def test_replaying_an_earlier_failure_takes_no_try_away(kernel: Kernel) -> None:
    """A body that is resumed meets the nested failures of its earlier tries: those were counted."""
    inner = Failing(2)
    tries: list[int] = []
    policy = RetryPolicy(attempts=3, first_wait=0)

    def body() -> int:
        tries.append(1)
        number = rebuno.step("inner", inner)
        if len(tries) == 3:
            raise KeyboardInterrupt
        return number

    def handler() -> int:
        return rebuno.step("outer", body, retries=policy)

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler, key="k", agent="a", kernel=kernel)
    # Two tries have failed, and the third, the last, was cut down.
    assert [told["attempt"] for told in retrying_events(kernel)] == [1, 2]
    assert rebuno.run(handler, key="k", agent="a", kernel=kernel) == 3
    assert inner.tries == 3
    assert [told["attempt"] for told in retrying_events(kernel)] == [1, 2]


# -- attempts


class Without(FaultyPort):
    """A kernel that does not keep failed tries."""

    @property
    def keeps_tries(self) -> bool:
        return False


@pytest.mark.parametrize(("keeps", "bodies"), [(True, 4), (False, 6)])
def test_an_attempt_that_dies_in_back_off_is_followed_by_the_remaining_tries(
    kernel: Kernel, keeps: bool, bodies: int
) -> None:
    """Where the kernel keeps tries; else they start anew."""
    body = Failing(99)
    dies = [True]

    port = (FaultyPort if keeps else Without)(kernel.agent)

    def fails() -> int:
        body.tries += 1
        if body.tries == 3 and dies:
            dies.pop()
            raise KeyboardInterrupt
        raise Busy

    def handler() -> Any:
        return rebuno.step("flaky", fails, retries=AT_ONCE)

    execution_id = created(kernel)
    with pytest.raises(KeyboardInterrupt):
        attempt(kernel, execution_id, handler, port=port)
    outcome = attempt(kernel, execution_id, handler, port=port)
    assert outcome.status == "failed"
    # Of four tries two had failed, and the third was cut down, which is no failure.
    assert body.tries - 1 == bodies


def test_an_effect_that_must_not_happen_twice_is_safe_in_back_off(kernel: Kernel) -> None:
    """Its failures prove that nothing happened, so an interrupt between two tries leaves no
    doubt."""
    body = Failing(1)
    policy = RetryPolicy(attempts=2, first_wait=0.05, on=Busy)
    port = FaultyPort(kernel.agent)

    def interrupted() -> None:
        raise KeyboardInterrupt

    port.after("retrying", interrupted)

    def handler() -> Any:
        return rebuno.step("charge", body, idempotency="at_most_once", retries=policy)

    execution_id = created(kernel)
    with pytest.raises(KeyboardInterrupt):
        attempt(kernel, execution_id, handler, port=port)
    assert attempt(kernel, execution_id, handler).output == 2


@pytest.mark.parametrize("method", ["retrying", "begin_try"])
def test_a_lost_answer_about_a_try_is_asked_for_again(kernel: Kernel, method: str) -> None:
    """Nothing is tried twice for it."""
    port = FaultyPort(kernel.agent)
    port.lose_reply(method)
    port.lose_request(method)
    body = Failing(2)
    outcome = attempt(
        kernel, created(kernel), lambda: rebuno.step("flaky", body, retries=AT_ONCE), port=port
    )
    assert outcome.output == 3
    assert port.count(method) == 4


def test_a_try_that_another_attempt_has_overtaken_ends_its_attempt(kernel: Kernel) -> None:
    """The fence refuses it, and no further body runs."""
    port = FaultyPort(kernel.agent)
    body = Failing(9)
    execution_id = created(kernel)
    port.before("begin_try", lambda: kernel.cancel(execution_id))
    outcome = attempt(
        kernel, execution_id, lambda: rebuno.step("flaky", body, retries=AT_ONCE), port=port
    )
    assert outcome.status == "terminated"
    assert body.tries == 1


def test_an_attempt_that_is_over_leaves_its_back_off_at_once(kernel: Kernel) -> None:
    """It does not wait for the rest of it, and tries nothing more."""
    body = Failing(9)
    policy = RetryPolicy(attempts=3, first_wait=600, longest_wait=600)
    context: list[Any] = []

    def handler() -> None:
        context.append(rebuno.execution())
        rebuno.step("flaky", body, retries=policy)

    execution_id = created(kernel)
    with background(lambda: attempt(kernel, execution_id, handler)) as thread:
        wait_until(lambda: retrying_events(kernel), "a failed try")
        context[0]._lease.end("somebody else has it")
        assert thread.result(1.0).status == "lease_superseded"
    assert body.tries == 1


# -- what is refused at decoration


@pytest.mark.parametrize(
    "bounds",
    [
        *({"timeout": bad} for bad in (0, -1, math.nan, math.inf, True, "1", timedelta(1))),
        *({"retries": bad} for bad in (-1, 1.5, math.nan, True, None, "3")),
    ],
    ids=repr,
)
def test_bounds_that_make_no_sense_are_refused_where_they_are_written(
    bounds: dict[str, Any],
) -> None:
    """At decoration, by the name of the effect."""
    with pytest.raises((TypeError, ValueError), match="fetch"):
        rebuno.tool("fetch", **bounds)(lambda: None)
    with pytest.raises((TypeError, ValueError), match="fetch"):
        rebuno.wrap_tool("fetch", lambda _: None, **bounds)
    with pytest.raises((TypeError, ValueError), match="fetch"):
        rebuno.step("fetch", lambda: None, **bounds)


@pytest.mark.parametrize(
    "bad",
    [
        *({"attempts": bad} for bad in (0, True, 2.0)),
        *({"first_wait": -1}, {"first_wait": math.nan}, {"longest_wait": math.inf}),
        *({"factor": 0.5}, {"jitter": 2}, {"jitter": "a"}),
        *({"on": bad} for bad in (BaseException, Busy("x"), ("Busy",))),
    ],
    ids=repr,
)
def test_a_policy_that_makes_no_sense_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        RetryPolicy(**bad)


@pytest.mark.parametrize(
    "retries",
    [
        *(1, RetryPolicy(), RetryPolicy(on=(Busy, StepTimeout)), RetryPolicy(on=ToolError)),
        *(RetryPolicy(on=TimeoutError), RetryPolicy(on=(Busy, OSError))),
    ],
    ids=repr,
)
def test_what_may_have_happened_is_not_tried_again(retries: Any) -> None:
    """Retries of an at_most_once effect need exceptions that prove that nothing happened; a timeout
    proves nothing."""
    with pytest.raises(ValueError, match="'charge' is at_most_once"):
        rebuno.tool("charge", idempotency="at_most_once", retries=retries)(lambda: None)


@pytest.mark.parametrize("retries", [0, RetryPolicy(attempts=1), RetryPolicy(on=Busy)], ids=repr)
def test_what_proves_that_nothing_happened_may_be_tried_again(retries: Any) -> None:
    rebuno.tool("charge", idempotency="at_most_once", retries=retries)(lambda: None)
