"""Malformed bytes on every route: always an answer, never a 500."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.http.routes import ROUTES
from rebuno_sync.types import LeaseKey

from .moves import Inbox, start, submit
from .wire import AGENT, SECRET, TOKEN, Answer, Wire

ALL = [(pattern, method) for pattern, methods in ROUTES.items() for method in methods]

KEYS = [
    *("agent_id", "input", "idempotency_key", "session", "spawned_by", "kind", "target", "args"),
    *("idempotency", "resources", "result", "error", "captures", "output", "state", "seq", "data"),
    *("operations", "op", "step_id", "leases", "execution_id", "dispatch_id", "dispatch_attempt"),
    *("id", "webhook_url", "secret", "lease_timeout_seconds", "signature", "description"),
]

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(["submit", "complete_step", "complete", "body", "at_most_once", "\ud800"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=6,
)

BODIES = st.one_of(
    st.binary(max_size=60),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5).map(
        lambda fields: json.dumps(fields).encode()
    ),
    st.sampled_from(
        [
            b"null",
            b'{"args":' + b"[" * 5000,
            b'{"args":' + b"[" * 5000 + b"]" * 5000 + b"}",
            b'{"args":' + b"9" * 5000 + b"}",
            b'{"seq":' + b"9" * 400 + b"}",
            b'{"lease_timeout_seconds":-1e400}',
            b'{"kind":"\\ud800","target":"\\u0000","args":"\\ud800"}',
            b'\xef\xbb\xbf{"kind":"k"}',
            b'{"kind":"k","kind":5}',
            b'{"operations":[{"op":"submit","args":[[[}]}',
            b'{"leases":[[],{"execution_id":5,"dispatch_id":[],"dispatch_attempt":true}]}',
            b"{" + b'"args":1,' * 2000 + b'"kind":"k"}',
        ]
    ),
)

NAMES = st.one_of(
    st.just("{id}"),
    st.text(
        st.characters(min_codepoint=33, max_codepoint=255, exclude_characters="?#/"), min_size=1
    ),
    st.sampled_from(["%", "%00", "%ff%fe", "..", "%2F", "%F0%28%8C%28", "0" * 5000]),
)

QUERIES = st.one_of(
    st.just(""),
    st.text(st.characters(min_codepoint=33, max_codepoint=255), max_size=20).map("?".__add__),
    st.sampled_from(
        [
            "?limit=999999999999999999999",
            "?cursor=%00",
            "?after_seq=-9",
            "?limit=%F0",
            "?status=%00",
        ]
    ),
)

HEADERS = st.dictionaries(
    st.sampled_from(
        [
            *("Authorization", "Rebuno-Agent-Id", "Rebuno-Signature", "Rebuno-Timestamp"),
            *("Rebuno-Dispatch-Id", "Rebuno-Dispatch-Attempt", "Rebuno-Request-Id"),
            *("Rebuno-Extensions", "Rebuno-Runner"),
        ]
    ),
    st.one_of(
        st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=20),
        st.sampled_from(["Bearer \xff", "v1=\xff", "sha256=", "9" * 40, "-1", "1" * 18]),
    ),
    max_size=3,
)


class Target:
    """A kernel with an execution under way, for one test."""

    def __init__(self, kernel: Kernel, clock: ManualClock) -> None:
        self.kernel = kernel
        self.wire = Wire(kernel, clock)
        self._inbox = Inbox(kernel)
        self.lease = self._start()

    def _start(self) -> LeaseKey:
        self.kernel.register_agent(AGENT, webhook_url="http://x/", secret=SECRET)
        return start(self.kernel, self._inbox)

    def path(self, pattern: str, name: str = "{id}") -> str:
        """The route, of the execution under way."""
        if self.kernel.get(self.lease.execution_id).status.terminal:
            self.lease = self._start()
        real = AGENT if "agents" in pattern else self.lease.execution_id
        step = "0" * 64
        if "{step}" in pattern:
            step = submit(self.wire, self.lease).json.get("step_id", step)
        return pattern.replace("{id}", name).replace("{id}", real).replace("{step}", step)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    clock = ManualClock()
    file: Path = tmp_path_factory.mktemp("malformed") / "kernel.db"
    with Kernel(file, clock=clock) as kernel:
        yield Target(kernel, clock)


def _check(answer: Answer) -> None:
    assert answer.status < 500, answer
    if answer.status >= 400 and answer.status != 405:
        plain = answer.headers["Content-Type"].startswith("text/plain")
        assert plain or answer.json["code"]


patient = settings(suppress_health_check=list(HealthCheck), max_examples=60)


@pytest.mark.parametrize(("pattern", "method"), ALL)
@patient
@given(body=BODIES, query=QUERIES)
def test_a_right_signature_over_malformed_bytes(
    target: Target, pattern: str, method: str, body: bytes, query: str
) -> None:
    """Whoever may send it: the body and the query are read, then refused or accepted."""
    where = target.path(pattern) + query
    _check(target.wire.act(method, where, body, target.lease))
    _check(target.wire.operate(method, where, body))
    target.kernel.register_agent(AGENT, webhook_url="http://x/", secret=SECRET)


@pytest.mark.parametrize(("pattern", "method"), ALL)
@patient
@given(name=NAMES, query=QUERIES, headers=HEADERS, body=BODIES)
def test_malformed_paths_and_headers(
    target: Target,
    pattern: str,
    method: str,
    name: str,
    query: str,
    headers: dict[str, str],
    body: bytes,
) -> None:
    """Whatever stands in the path, the query and the headers."""
    where = target.path(pattern, name) + query
    _check(target.wire.send(method, where, body, headers))
    _check(target.wire.operate(method, where, body))
    _check(target.wire.act(method, where, body, target.lease, more=_harmless(headers)))
    target.kernel.register_agent(AGENT, webhook_url="http://x/", secret=SECRET)


def _harmless(headers: dict[str, str]) -> dict[str, str]:
    unsigned = ("Rebuno-Request-Id", "Rebuno-Extensions", "Rebuno-Runner")
    return {name: value for name, value in headers.items() if name in unsigned}


@pytest.mark.parametrize("length", ["", "-5", "x", "99999999999999999999"])
def test_a_length_that_is_none(target: Target, length: str) -> None:
    """A server may pass on what a client claims."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/v0/executions",
        "QUERY_STRING": "",
        "CONTENT_LENGTH": length,
        "HTTP_AUTHORIZATION": f"Bearer {TOKEN}",
    }
    started: list[str] = []
    b"".join(target.wire.app(environ, lambda status, headers: started.append(status)))  # type: ignore[arg-type, misc]
    assert started == ["400 Bad Request"]


def test_a_failure_of_the_kernel_is_an_envelope(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    """Should something fail that nobody has thought of, the answer tells nothing, and the log
    does."""
    caplog.set_level(logging.ERROR)
    started: list[str] = []
    content = b"".join(target.wire.app({}, lambda status, headers: started.append(status)))  # type: ignore[arg-type, misc]
    assert started == ["500 Internal Server Error"]
    assert json.loads(content)["code"] == "internal_error"
    assert "KeyError" in caplog.text


@pytest.mark.parametrize("body", [b"", b"{", b'{"agent_id"', b'{"agent_id": "a"'])
def test_a_body_that_is_cut_short_is_told_so(wire: Wire, body: bytes) -> None:
    answer = wire.operate("POST", "/v0/executions", body)
    assert answer.status == 400
    assert answer.json["message"].endswith("the body is not a JSON object: it breaks off")


@pytest.mark.parametrize(
    ("rest", "body"),
    [
        ("/steps", '{"kind":"k","target":"t","args":%s}'),
        ("/batch", '{"operations":[{"op":"submit","kind":"k","target":"t","args":%s}]}'),
        ("/resources", '{"key":"k","driver_id":"d","configuration":%s}'),
        ("/resources/checkpoints", '{"captures":%s}'),
        ("/fail", '{"error":%s}'),
    ],
)
def test_values_that_just_fit_the_stack(target: Target, rest: str, body: str) -> None:
    """A value is read more than once, at places of the stack that differ."""
    limit = sys.getrecursionlimit()
    for depth in range(limit - 100, limit + 10):
        nested = (body % ("[" * depth + "]" * depth)).encode()
        where = target.path("/v0/executions/{id}") + rest
        _check(target.wire.act("POST", where, nested, target.lease))
