"""``Core``: the parts of a kernel, by whom they serve."""

from __future__ import annotations

from collections.abc import Callable

from ..ports import Clock
from .agents import AgentRegistry
from .executions import Terms
from .forking import Forking
from .keys import Keys
from .policies import Policies
from .records import Records
from .remote import RemotePort
from .retention import Retention
from .store import Store
from .streams import Deltas
from .transfer import Transfer

__all__ = ["Core"]


class Core:
    """One kernel's rules on one file, without a road to them."""

    def __init__(
        self,
        store: Callable[[], Store],
        clock: Clock,
        *,
        lease_timeout: float,
        max_attempts: int,
        deadline: float | None,
        retention: float | None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.lease_timeout = lease_timeout
        terms = Terms(max_attempts, deadline)
        self.records = Records(store, clock, terms)
        self.retention = Retention(store, clock, retention)
        self.forking = Forking(store, clock, terms)
        self.agents = AgentRegistry(store, clock)
        self.keys = Keys(store, clock)
        self.policies = Policies(store, clock)
        self.remote = RemotePort(store, clock)
        self.transfer = Transfer(store, clock)
        self.deltas = Deltas(store, clock)
