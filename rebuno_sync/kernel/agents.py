"""Registering agents (protocol.md 2.3)."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from ..errors import APIError, api_error
from ..ports import Clock
from .moment import Moment
from .reading import read_on_time
from .store import Connection, Store, queue, registry
from .store.rows import AgentRow

__all__ = ["LONGEST_LEASE_SECONDS", "AgentRegistry"]

_SMALLEST_LEASE_SECONDS = 10.0

LONGEST_LEASE_SECONDS = 1e9
"""What agents accept in a webhook."""

_KEPT_SECONDS = 0.25
"""How long another process's change of an agent may go unnoticed."""

_ACCEPTS_BODY_FORM = {None: False, "": False, "v1": False, "body": True}


class AgentRegistry:
    """The agents that a kernel knows. Their secrets leave it only to verify and to sign."""

    def __init__(self, store: Callable[[], Store], clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[str, tuple[float, AgentRow]] = {}

    def register(
        self,
        agent_id: str,
        *,
        webhook_url: str = "",
        secret: str = "",
        lease_timeout_seconds: float = 0,
        signature: str | None = None,
        policy: str | None = "",
    ) -> AgentRow:
        """Make an agent known, or replace all that was registered; what it has published about
        itself stays.

        ``policy``: a bundle that was checked; no step comes in between without it. ``None`` leaves
        the one that the agent has.
        """
        if signature not in _ACCEPTS_BODY_FORM:
            raise _invalid(f"signature must be 'v1' or 'body', not {signature!r}")
        if not agent_id:
            raise _invalid("an agent needs an id")
        if not lease_timeout_seconds <= LONGEST_LEASE_SECONDS:
            raise _invalid(
                f"lease_timeout_seconds must be 10 to {LONGEST_LEASE_SECONDS:.0f} seconds (less"
                f" stands for the kernel's default), not {lease_timeout_seconds}"
            )
        _check_address(webhook_url)
        as_given = lease_timeout_seconds >= _SMALLEST_LEASE_SECONDS
        now = Moment.of(self._clock)
        row = AgentRow(
            agent_id,
            webhook_url,
            secret,
            _ACCEPTS_BODY_FORM[signature],
            lease_timeout_seconds if as_given else 0.0,
            None,
            now.wall,
        )

        def work(db: Connection) -> AgentRow:
            before = registry.agent(db, agent_id) or row
            bundle = before.policy_bundle if policy is None else policy
            put = row._replace(metadata=before.metadata, policy_bundle=bundle)
            registry.put_agent(db, put)
            queue.hasten(db, agent_id, now.wall, now.boottime)
            return put

        store = self._store()
        put = store.write(work, durable=True)
        self._known.pop(agent_id, None)
        store.work_queued()
        return put

    def all(self) -> list[AgentRow]:
        """By id."""
        return self._store().read(registry.agents)

    def get(self, agent_id: str) -> AgentRow:
        row = self._store().read(lambda db: registry.agent(db, agent_id))
        if row is None:
            raise _unknown(agent_id)
        return row

    def find(self, agent_id: str, *, fresh: bool = False) -> AgentRow | None:
        """What is known of an agent; unless ``fresh``, as it was a moment ago.

        Each request of an agent asks, and each use of SQLite gives up the interpreter's lock.
        """
        now = self._clock.monotonic()
        kept = self._known.get(agent_id)
        if kept is not None and not fresh and 0 <= now - kept[0] < _KEPT_SECONDS:
            return kept[1]
        row = self._store().read(lambda db: registry.agent(db, agent_id))
        if row is None:
            self._known.pop(agent_id, None)
        else:
            self._known[agent_id] = now, row
        return row

    def delete(self, agent_id: str) -> None:
        """Forget an agent, unless executions of it are still to be run."""

        def work(db: Connection) -> None:
            if registry.agent(db, agent_id) is None:
                raise _unknown(agent_id)
            if registry.has_live_executions(db, agent_id):
                raise api_error(
                    "conflict",
                    f"conflict: agent {agent_id!r} has executions that have not ended; cancel"
                    " them first",
                    409,
                )
            registry.drop_agent(db, agent_id)

        store = self._store()
        read_on_time(store, self._clock, lambda _: None)  # One past its deadline has ended.
        store.write(work, durable=True)
        self._known.pop(agent_id, None)

    def put_metadata(self, agent_id: str, metadata: str) -> None:
        """Keep what an agent says of itself: JSON text. It does so when it starts, so what could
        not be delivered to it before is due now."""
        now = Moment.of(self._clock)

        def work(db: Connection) -> None:
            registry.set_metadata(db, agent_id, metadata)
            queue.hasten(db, agent_id, now.wall, now.boottime)

        store = self._store()
        store.write(work, durable=False)
        store.work_queued()


def _check_address(webhook_url: str) -> None:
    """Refuse where nothing can be delivered to; the empty address is that of an agent without."""
    if not webhook_url:
        return
    try:
        parts = urlsplit(webhook_url)
        reachable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        problem = ""
    except ValueError as error:  # of its port, or of its brackets
        reachable, problem = False, f" ({error})"
    if not reachable:
        raise _invalid(
            "webhook_url must be an http:// or https:// address with a host, or empty for an agent"
            f" without a webhook, not {webhook_url!r}{problem}"
        )


def _unknown(agent_id: str) -> APIError:
    return api_error("not_found", f"not found: agent {agent_id!r} is not registered", 404)


def _invalid(detail: str) -> APIError:
    return api_error("validation_error", f"validation error: {detail}", 400)
