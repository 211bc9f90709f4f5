"""What a webhook is answered, and what becomes of it (docs/explanation/service.md)."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.attempts import background, claimed, created
from support.faulty_port import FaultyPort
from support.services import Service
from support.waiting import wait_until

from rebuno_sync.clock import ManualClock
from rebuno_sync.heartbeat import Lease, Renewer
from rebuno_sync.kernel import Kernel
from rebuno_sync.signing import sign_body
from rebuno_sync.types import LeaseKey
from rebuno_sync.webhook import Webhook, WebhookAnswer

SECRET = "a secret"


def body_of(key: LeaseKey, seconds: float | None = 60, **more: Any) -> bytes:
    """As a kernel writes it (protocol.md 4)."""
    fields: dict[str, Any] = {"execution_id": key.execution_id, "dispatch_id": key.dispatch_id}
    if key.attempt:
        fields["dispatch_attempt"] = key.attempt
    if seconds is not None:
        fields["lease_timeout_seconds"] = seconds
    return json.dumps({**fields, **more}, separators=(",", ":")).encode()


class Receiver:
    """A webhook whose handlers wait until they are told to end, or their lease ends."""

    def __init__(self, port: FaultyPort, **options: Any) -> None:
        self.renewer = Renewer()
        self.port = port
        self.extensions: list[str] = []
        self.run: list[LeaseKey] = []
        self.secured: list[LeaseKey] = []
        self.ended_early: list[LeaseKey] = []
        self.go_on = threading.Event()
        self.wait_for_end = True
        options = {"workers": 4, **options}
        self.webhook = Webhook(
            (SECRET,),
            port,
            self._run,
            renewer=self.renewer,
            learn_extensions=self.extensions.append,
            **options,
        )

    def _run(self, lease: Lease, secured: Callable[[], None]) -> None:
        self.run.append(lease.key)
        if self.renewer.secure(lease, self.port):
            secured()
            self.secured.append(lease.key)
        while not self.go_on.wait(0.005):
            if lease.over and self.wait_for_end:
                self.ended_early.append(lease.key)
                return

    def send(self, body: bytes, **headers: str) -> WebhookAnswer:
        named = {"Rebuno-Signature": sign_body(SECRET, body), **headers}
        return self.webhook.handle(named, body)

    def deliver(self, key: LeaseKey, **more: Any) -> WebhookAnswer:
        return self.send(body_of(key, **more))

    def runs(self, *keys: LeaseKey) -> None:
        """Wait until exactly these run, or ran."""
        wait_until(lambda: sorted(self.run) == sorted(keys), f"the running of {keys}")

    def close(self) -> None:
        self.go_on.set()
        self.webhook.stop()
        for delivery in self.webhook.deliveries:
            delivery.lease.end()
        assert self.webhook.join(20)
        self.renewer.stop()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def kernel(tmp_path: Path, clock: ManualClock) -> Iterator[Kernel]:
    with Kernel(tmp_path / "kernel.db", clock=clock, lease_timeout=60) as kernel:
        yield kernel


@pytest.fixture
def port(kernel: Kernel) -> FaultyPort:
    return FaultyPort(kernel.agent)


@pytest.fixture
def receiver(port: FaultyPort) -> Iterator[Receiver]:
    receiver = Receiver(port)
    yield receiver
    receiver.close()


@pytest.fixture
def key(kernel: Kernel) -> LeaseKey:
    """The lease of an attempt that runs."""
    return claimed(kernel, created(kernel)).key


def next_attempt(kernel: Kernel, clock: ManualClock, key: LeaseKey) -> LeaseKey:
    """The attempt after one whose lease ran out."""
    clock.advance(61)
    return claimed(kernel, key.execution_id).key


# -- what is accepted


def test_a_delivery_is_answered_at_once_and_run_by_another_thread(
    receiver: Receiver, key: LeaseKey
) -> None:
    """Its lease is renewed by the time it was given; what the kernel can do is learnt from it."""
    answer = receiver.send(body_of(key), **{"REBUNO-EXTENSIONS": "batch, leases"})
    assert answer == WebhookAnswer(200)
    wait_until(lambda: receiver.secured == [key], "the run")
    assert receiver.extensions == ["batch, leases"]
    [delivery] = receiver.webhook.deliveries
    assert delivery.lease.seconds == 60
    assert not delivery.lease.over


def test_a_g0_webhook_without_attempt_and_lease_is_accepted(
    receiver: Receiver, key: LeaseKey
) -> None:
    """The attempt header will be left out, and the lease is taken as 120 s."""
    oldest = key._replace(attempt=0)
    assert receiver.send(body_of(oldest, None)).status == 200
    receiver.runs(oldest)
    [delivery] = receiver.webhook.deliveries
    assert delivery.lease.seconds == 120


def test_a_webhook_of_the_first_kernels_with_attempts_has_no_lease(
    receiver: Receiver, key: LeaseKey
) -> None:
    assert receiver.send(body_of(key, None)).status == 200
    receiver.runs(key)


def test_keys_that_nobody_knows_are_ignored(receiver: Receiver, key: LeaseKey) -> None:
    """A newer kernel may add some."""
    assert receiver.deliver(key, novelty={"a": [1]}).status == 200
    receiver.runs(key)


# -- signatures


def tampered(body: bytes, signature: str) -> dict[str, tuple[bytes, str | None]]:
    """Each signed part changed, and each part of the signature."""
    fields = json.loads(body)
    changed: dict[str, tuple[bytes, str | None]] = {
        name: (json.dumps({**fields, name: value}, separators=(",", ":")).encode(), signature)
        for name, value in {
            "execution_id": "another",
            "dispatch_id": "another",
            "dispatch_attempt": 2,
            "lease_timeout_seconds": 61,
            "event": "cancelled",
        }.items()
    }
    return {
        **changed,
        "a blank at the end": (body + b" ", signature),
        "a byte less": (body[:-1], signature),
        "an empty body": (b"", signature),
        "no signature": (body, None),
        "an empty signature": (body, ""),
        "no scheme": (body, signature.removeprefix("sha256=")),
        "another scheme": (body, "v1=" + signature.removeprefix("sha256=")),
        "upper case": (body, signature.upper()),
        "upper case digits": (body, "sha256=" + signature[7:].upper()),
        "half": (body, signature[:40]),
        "twice": (body, f"{signature},{signature}"),
        "another secret": (body, sign_body("another", body)),
        "no ASCII": (body, signature[:-1] + "\xe9"),
    }


@pytest.mark.parametrize("part", tampered(body_of(LeaseKey("e", "d", 1)), "sha256=" + "0" * 64))
def test_whatever_was_tampered_with_is_401(receiver: Receiver, key: LeaseKey, part: str) -> None:
    """Without a reason, and without any effect."""
    body = body_of(key)
    body, signature = tampered(body, sign_body(SECRET, body))[part]
    headers = {} if signature is None else {"rebuno-signature": signature}
    assert receiver.webhook.handle(headers, body) == WebhookAnswer(401)
    assert receiver.webhook.deliveries == []
    assert receiver.extensions == []


def test_the_log_tells_once_of_a_secret_that_is_another(
    receiver: Receiver, key: LeaseKey, caplog: pytest.LogCaptureFixture
) -> None:
    body = body_of(key)
    for _ in range(3):
        receiver.webhook.handle({"rebuno-signature": sign_body("another", body)}, body)
    [record] = caplog.records
    assert "not signed with this agent's secret" in record.message


@pytest.mark.parametrize("at", range(0, 160, 7))
def test_every_changed_bit_of_a_body_is_401(receiver: Receiver, key: LeaseKey, at: int) -> None:
    body = body_of(key)
    at %= len(body)
    changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
    headers = {"rebuno-signature": sign_body(SECRET, body)}
    assert receiver.webhook.handle(headers, changed).status == 401


# -- bodies


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"null", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"{}", "execution_id"),
        (b'{"execution_id": "e"}', "dispatch_id"),
        (b'{"execution_id": 5, "dispatch_id": "d"}', "execution_id"),
        (b'{"execution_id": "", "dispatch_id": "d"}', "execution_id"),
        (b'{"execution_id": "e\\r\\nX: y", "dispatch_id": "d"}', "execution_id"),
        (b'{"execution_id": "e", "dispatch_id": "\\u00e9"}', "dispatch_id"),
        (b'{"execution_id": "e", "dispatch_id": "\\ud800"}', "dispatch_id"),
        *[
            (
                b'{"execution_id": "e", "dispatch_id": "d", "dispatch_attempt": %s}' % it,
                "dispatch_attempt",
            )
            for it in (b"0", b"-1", b"1.0", b"true", b"null", b'"1"', b"9" * 4000, b"[1]")
        ],
        *[
            (
                b'{"execution_id": "e", "dispatch_id": "d", "lease_timeout_seconds": %s}' % it,
                "lease_timeout_seconds",
            )
            for it in (b"0", b"-1", b"NaN", b"Infinity", b"true", b'"5"', b"null", b"9" * 4000)
        ],
        (b'{"execution_id": "e", "dispatch_id": "d", "event": 5}', "event"),
    ],
)
def test_a_malformed_body_is_400_with_a_reason(
    receiver: Receiver, body: bytes, reason: str
) -> None:
    answer = receiver.send(body)
    assert answer.status == 400
    assert reason in answer.reason
    assert receiver.webhook.deliveries == []


LIKELY = st.sampled_from(
    ["execution_id", "dispatch_id", "dispatch_attempt", "lease_timeout_seconds", "event"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(LIKELY | st.text(), inner),
    max_leaves=8,
)


@given(body=st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_whatever_bytes_come_the_answer_is_a_status(body: bytes) -> None:
    """Signed or not: never an exception, and never 200 for what names no attempt."""
    closed = Receiver(None)  # type: ignore[arg-type]
    closed.webhook.stop()
    assert closed.webhook.handle({}, body) == WebhookAnswer(401)
    assert closed.send(body).status in (400, 503, 200)
    assert closed.webhook.deliveries == []


@given(headers=st.dictionaries(st.text(), st.text(), max_size=5), signature=st.text())
def test_whatever_headers_come_the_answer_is_401(headers: dict[str, str], signature: str) -> None:
    closed = Receiver(None)  # type: ignore[arg-type]
    headers["Rebuno-Signature"] = signature
    assert closed.webhook.handle(headers, b"{}") == WebhookAnswer(401)


# -- duplicates and newer ones


def test_a_duplicate_is_answered_and_ignored(receiver: Receiver, key: LeaseKey) -> None:
    """While it runs, and after it."""
    for _ in range(3):
        assert receiver.deliver(key).status == 200
    receiver.runs(key)
    receiver.go_on.set()
    assert receiver.webhook.join(20)
    assert receiver.deliver(key).status == 200
    assert receiver.webhook.join(20)
    assert receiver.run == [key]


NAMES_RUNNER = {"Rebuno-Extensions": "request-id, runner"}


def test_a_delivery_has_a_runner_of_its_own_where_the_kernel_names_them(
    port: FaultyPort, receiver: Receiver, key: LeaseKey
) -> None:
    """Two processes that get the same webhook make two; for other kernels there are none."""
    plain, second = Receiver(port), Receiver(port)
    try:
        for each, headers in ((receiver, NAMES_RUNNER), (second, NAMES_RUNNER), (plain, {})):
            each.send(body_of(key), **headers)
            wait_until(lambda each=each: each.run, "the run")
        runners = [each.run[0].runner for each in (receiver, second, plain)]
        assert runners[2] == ""
        assert len({str(uuid.UUID(runner)) for runner in runners[:2]}) == 2
    finally:
        plain.close()
        second.close()


def test_a_delivery_with_a_runner_is_known_by_its_attempt(
    receiver: Receiver, port: FaultyPort, key: LeaseKey
) -> None:
    """A duplicate is none of another, and a notice, which names no runner, means it."""
    for headers in (NAMES_RUNNER, NAMES_RUNNER, {}):
        assert receiver.send(body_of(key), **headers).status == 200
    wait_until(lambda: len(receiver.secured) == 1, "the run")
    beats = port.count("renew")
    receiver.send(body_of(key, event="cancelled"))
    wait_until(lambda: port.count("renew") > beats, "a heartbeat at once")
    assert len(receiver.run) == 1


def test_a_delivery_whose_heartbeat_is_refused_teaches_nothing(
    receiver: Receiver, key: LeaseKey
) -> None:
    """What the kernel can do is in a header that is not signed: one that was captured, and sent
    again without it, does not make the agent forget."""
    receiver.send(body_of(key), **NAMES_RUNNER)
    wait_until(lambda: len(receiver.secured) == 1, "the run")
    receiver.deliver(key._replace(attempt=key.attempt + 1))
    wait_until(lambda: len(receiver.ended_early) == 1, "the end of the refused one")
    assert receiver.extensions == ["request-id, runner"]


def test_an_older_attempt_is_ignored(
    receiver: Receiver, kernel: Kernel, clock: ManualClock, key: LeaseKey
) -> None:
    """A late delivery must not end the newer run."""
    newer = next_attempt(kernel, clock, key)
    receiver.deliver(newer)
    receiver.runs(newer)
    assert receiver.deliver(key).status == 200
    [delivery] = receiver.webhook.deliveries
    assert delivery.lease.key == newer
    assert not delivery.lease.over


def test_a_newer_attempt_ends_the_older_run_and_takes_over(
    receiver: Receiver, kernel: Kernel, clock: ManualClock, key: LeaseKey
) -> None:
    receiver.deliver(key)
    wait_until(lambda: receiver.secured == [key], "the first run")
    newer = next_attempt(kernel, clock, key)
    assert receiver.deliver(newer).status == 200
    wait_until(lambda: receiver.ended_early == [key], "the end of the older run")
    wait_until(lambda: receiver.secured == [key, newer], "the newer run")


def test_a_newer_attempt_whose_heartbeat_is_refused_ends_nothing(
    receiver: Receiver, key: LeaseKey
) -> None:
    """It was never given out by the kernel."""
    receiver.deliver(key)
    wait_until(lambda: receiver.secured == [key], "the first run")
    receiver.deliver(key._replace(attempt=key.attempt + 1))
    wait_until(lambda: len(receiver.ended_early) == 1, "the end of the refused one")
    assert receiver.secured == [key]
    [delivery] = receiver.webhook.deliveries
    assert (delivery.lease.key, delivery.lease.over) == (key, False)


def test_c35_a_captured_webhook_of_another_dispatch_does_not_disturb_a_live_run(
    receiver: Receiver, key: LeaseKey
) -> None:
    """Webhooks carry no time: only an accepted heartbeat counts."""
    receiver.deliver(key)
    wait_until(lambda: receiver.secured == [key], "the live run")
    captured = key._replace(dispatch_id="019d0000-0000-7000-8000-000000000000")
    assert receiver.deliver(captured).status == 200
    wait_until(lambda: receiver.ended_early == [captured], "the end of the captured one")
    [delivery] = receiver.webhook.deliveries
    assert (delivery.lease.key, delivery.lease.over) == (key, False)


def test_another_dispatch_that_the_kernel_accepts_ends_the_run_that_it_does_not(
    receiver: Receiver, kernel: Kernel, clock: ManualClock, key: LeaseKey
) -> None:
    """The kernel is asked about the other one at once."""
    stale = key._replace(dispatch_id="019d0000-0000-7000-8000-000000000000")
    receiver.port.lose_request("renew", times=1)
    receiver.deliver(stale)
    wait_until(lambda: receiver.port.count("renew") >= 1, "a beat whose fate is unknown")
    receiver.deliver(key)
    wait_until(lambda: receiver.secured == [key], "the live run")
    wait_until(lambda: receiver.ended_early == [stale], "the end of the stale one")


def test_c35_after_its_end_a_captured_webhook_runs_nothing(service: Service) -> None:
    """Nor does an older attempt of it, in a process that has never seen either."""
    runs: list[int] = []
    captured: list[tuple[dict[str, str], bytes]] = []

    def handler() -> None:
        runs.append(1)

    agent = service.agent(handler)
    handle = agent.webhook.handle
    agent.app._handle = lambda headers, body: (
        captured.append((headers, body)) or handle(headers, body)
    )
    service.run()
    [(headers, body)] = captured
    assert handle(headers, body).status == 200
    fresh = service.agent(handler)  # Knows of nothing, as a process that was started again.
    assert fresh.webhook.handle(headers, body).status == 200
    assert fresh.join(20)
    assert runs == [1]


def test_a_g0_redelivery_is_taken_once_the_lease_is_over(receiver: Receiver, key: LeaseKey) -> None:
    """A kernel without attempts delivers the same dispatch again; while it runs here it is a
    duplicate."""
    oldest = key._replace(attempt=0)
    receiver.wait_for_end = False
    receiver.port.lose_request("renew", times=1000)  # This kernel knows no lease without attempt.
    receiver.deliver(oldest)
    receiver.runs(oldest)
    receiver.deliver(oldest)
    [delivery] = receiver.webhook.deliveries
    delivery.lease.end()
    receiver.deliver(oldest)
    receiver.runs(oldest, oldest)


# -- notices


def test_a_notice_makes_the_agent_ask_about_that_lease_at_once(
    receiver: Receiver, kernel: Kernel, key: LeaseKey
) -> None:
    """What it learns from the kernel decides; the notice alone proves nothing."""
    receiver.deliver(key)
    wait_until(lambda: receiver.secured == [key], "the run")
    beats = receiver.port.count("renew")
    assert receiver.deliver(key, event="cancelled").status == 200
    wait_until(lambda: receiver.port.count("renew") == beats + 1, "the question")
    [delivery] = receiver.webhook.deliveries
    assert not delivery.lease.over

    kernel.cancel(key.execution_id)
    receiver.deliver(key, event="cancelled")
    wait_until(lambda: receiver.ended_early == [key], "the end")


def test_a_notice_of_another_attempt_does_nothing(receiver: Receiver, key: LeaseKey) -> None:
    receiver.deliver(key)
    wait_until(lambda: receiver.secured == [key], "the run")
    beats = receiver.port.count("renew")
    for other in (key._replace(attempt=7), key._replace(execution_id="unknown")):
        assert receiver.deliver(other, event="cancelled").status == 200
    assert receiver.deliver(key, event="cancelled").status == 200
    wait_until(lambda: receiver.port.count("renew") == beats + 1, "the one question")
    assert receiver.run == [key]


# -- the queue


def test_a_full_pool_queues_and_renews_what_waits(kernel: Kernel, port: FaultyPort) -> None:
    """A long queue costs nobody an attempt; it is worked off in order."""
    receiver = Receiver(port, workers=1)
    leases = [claimed(kernel, created(kernel)) for _ in range(5)]
    keys = [lease.key for lease in leases]
    assert [receiver.deliver(key).status for key in keys] == [200] * 5
    receiver.runs(keys[0])
    assert len(receiver.renewer._kept) == 5
    receiver.go_on.set()
    assert receiver.webhook.join(20)
    assert receiver.run == keys
    assert receiver.renewer._kept == {}
    receiver.close()


def test_a_full_queue_is_503(kernel: Kernel, port: FaultyPort) -> None:
    """And keeps nothing of what it refused, so that it can be delivered again."""
    receiver = Receiver(port, workers=1, longest_queue=2)
    keys = [claimed(kernel, created(kernel)).key for _ in range(4)]
    receiver.deliver(keys[0])
    receiver.runs(keys[0])
    assert [receiver.deliver(key).status for key in keys[1:]] == [200, 200, 503]
    assert len(receiver.renewer._kept) == 3
    receiver.go_on.set()
    assert receiver.webhook.join(20)
    assert receiver.deliver(keys[3]).status == 200
    receiver.runs(*keys)
    receiver.close()


def test_a_run_that_was_ended_and_hangs_keeps_no_slot(
    kernel: Kernel, clock: ManualClock, port: FaultyPort, key: LeaseKey
) -> None:
    """With one worker, the newer attempt starts beside the thread that will not stop."""
    receiver = Receiver(port, workers=1)
    receiver.wait_for_end = False
    receiver.deliver(key)
    wait_until(lambda: receiver.secured == [key], "the first run")
    newer = next_attempt(kernel, clock, key)
    receiver.deliver(newer)
    # The old lease's next heartbeat is refused: here at once, since a notice asks for it.
    receiver.deliver(key, event="cancelled")
    wait_until(lambda: receiver.secured == [key, newer], "the newer run")
    receiver.close()


def test_closing_is_503_and_begins_nothing(receiver: Receiver, kernel: Kernel) -> None:
    """What waited comes back, to be given back."""
    keys = [claimed(kernel, created(kernel)).key for _ in range(6)]
    for key in keys[:5]:
        receiver.deliver(key)
    receiver.runs(*keys[:4])
    left = receiver.webhook.stop()
    assert [delivery.lease.key for delivery in left] == keys[4:5]
    assert receiver.deliver(keys[5]) == WebhookAnswer(503, "closing")
    assert not receiver.webhook.join(0)
    with background(lambda: receiver.webhook.join(20)) as joining:
        receiver.go_on.set()
        assert joining.result()
    assert sorted(receiver.run) == sorted(keys[:4])
