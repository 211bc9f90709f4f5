"""``/metrics``: what a kernel counts, as Prometheus text."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...errors import api_error
from ...types import DispatchStatus, ExecutionStatus
from ..core import Core
from ..store import Connection, census

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = ["Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_OPEN = (DispatchStatus.PENDING, DispatchStatus.FAILED, DispatchStatus.IN_FLIGHT)


class Metrics:
    """Requests answered by this process, and how the file stands when somebody asks."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._guard = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()

    def count(self, method: str, route: str, status: int) -> None:
        """One request was answered. ``route``: its entry in the table, not its path."""
        with self._guard:
            self._requests[method, route, status] += 1

    def text(self) -> bytes:
        try:
            from prometheus_client import CollectorRegistry, generate_latest
        except ImportError as error:
            message = "metrics need prometheus-client: pip install 'rebuno-sync[kernel]'"
            raise api_error("internal_error", message, 503) from error
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """As a collector of ``prometheus_client``."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        requests = CounterMetricFamily(
            "rebuno_http_requests",
            "Requests answered by this process.",
            labels=["method", "route", "status"],
        )
        with self._guard:
            counted = sorted(self._requests.items())
        for (method, route, answered), count in counted:
            requests.add_metric([method, route, str(answered)], count)
        yield requests
        by_status, waiting = self._core.store().read(_standing)
        executions = GaugeMetricFamily(
            "rebuno_executions", "Executions in the file.", labels=["status"]
        )
        for status in ExecutionStatus:  # Also those without any: an alert takes none for unknown.
            executions.add_metric([status], by_status.get(status, 0))
        yield executions
        dispatches = GaugeMetricFamily(
            "rebuno_dispatches", "Attempts that wait or are under way.", labels=["status"]
        )
        for each in _OPEN:
            dispatches.add_metric([each], waiting.get(each, 0))
        yield dispatches
        yield GaugeMetricFamily(
            "rebuno_event_streams", "Open event streams.", self._core.deltas.streams
        )
        database = self._core.store().database
        yield GaugeMetricFamily("rebuno_file_bytes", "Size of the file.", database.bytes_of_file())
        yield GaugeMetricFamily(
            "rebuno_log_bytes", "Size of the log beside the file.", database.bytes_of_log()
        )


def _standing(db: Connection) -> tuple[dict[str, int], dict[str, int]]:
    return dict(census.executions(db)), dict(census.open_dispatches(db))
