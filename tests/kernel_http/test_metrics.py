"""``/metrics``, ``/v0/health`` and ``/v0/ready``: asked by machines, without a token."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from rebuno_sync.kernel import Kernel
from rebuno_sync.types import ExecutionStatus

from .moves import Inbox, start
from .wire import AGENT, Wire


def samples(wire: Wire) -> dict[tuple[str, str], float]:
    """Values by the name of the sample and its labels."""
    answer = wire.send("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain")
    return {
        (sample.name, " ".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def test_metrics_tell_how_the_kernel_stands(wire: Wire, kernel: Kernel, inbox: Inbox) -> None:
    """Executions and attempts by status, streams, sizes."""
    start(kernel, inbox)
    kernel.cancel(kernel.create(AGENT).id)
    kernel.create(AGENT)
    listener = kernel.core.deltas.listen(kernel.create(AGENT).id)
    found = samples(wire)
    assert found["rebuno_executions", "running"] == 3
    assert found["rebuno_executions", "cancelled"] == 1
    assert found["rebuno_dispatches", "in_flight"] == 1
    assert found["rebuno_dispatches", "pending"] == 2
    assert found["rebuno_event_streams", ""] == 1
    assert found["rebuno_file_bytes", ""] + found["rebuno_log_bytes", ""] > 4096
    listener.close()


def test_an_empty_kernel_has_samples(wire: Wire) -> None:
    """Nothing failed is a zero, which an alert can compare, and no missing series."""
    found = samples(wire)
    assert [found["rebuno_executions", status] for status in ExecutionStatus] == [0] * 6
    assert [found["rebuno_dispatches", it] for it in ("pending", "failed", "in_flight")] == [0] * 3


def test_metrics_count_requests_by_their_route(wire: Wire) -> None:
    """However many executions are asked for, there is one series; unknown paths and methods
    share one too."""
    for n in range(3):
        wire.operate("GET", f"/v0/executions/00000000-0000-7000-8000-00000000000{n}")
        wire.operate("BREW", f"/coffee/{n}")
    wire.send("GET", "/v0/agents")
    found = samples(wire)
    requests = "rebuno_http_requests_total"
    assert found[requests, "GET /v0/executions/{id} 404"] == 3
    assert found[requests, "GET /v0/agents 401"] == 1
    assert found[requests, "other  404"] == 3
    assert samples(wire)[requests, "GET /metrics 200"] == 1


def test_the_probes(wire: Wire, kernel: Kernel) -> None:
    """It lives as long as it answers, and is ready as long as its file can be read."""
    assert wire.send("GET", "/v0/health").json == {"status": "ok"}
    assert wire.send("GET", "/v0/ready").json == {"status": "ready"}
    kernel.close()
    assert wire.send("GET", "/v0/health").status == 200
    ready = wire.send("GET", "/v0/ready")
    assert (ready.status, ready.json) == (503, {"status": "unavailable"})
