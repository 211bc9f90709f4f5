"""Delivers what is due: by webhook, or straight to agents of this process (protocol.md 4, 5.2).

``dispatch_once`` claims what is due and hands each delivery to a thread; the loop only calls it. An
agent has a few deliveries under way at most, so that one whose receiver hangs holds up nobody else.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ..errors import RebunoError
from ..ports import Deliver
from ..types import LeaseKey
from . import dispatches
from .claiming import Claiming
from .core import Core
from .crew import Crew
from .dispatches import Claim
from .moment import Moment
from .reading import next_due, read_on_time
from .store import Connection, Store, queue, registry
from .store.queue import Agenda, Notice
from .store.rows import AgentRow
from .webhooks import Refused, deliver_webhook

__all__ = ["Dispatcher", "Receive"]

_log = logging.getLogger(__name__)

Receive = Callable[[LeaseKey, float], bool]
"""Takes an attempt, with the seconds of its lease; false when it cannot be taken now."""

_POLL_SECONDS = 0.25
"""How late work of other processes may be noticed (protocol.md 5.2)."""

_MOST_UNDER_WAY = 4
_MOST_NOTICES_UNDER_WAY = 4
_PROBE_SECONDS = 1.0
"""How often an agent that refuses connections is tried, and whether other processes live is looked
at."""

_PATIENCE_SECONDS = 600.0
"""Refusals count as strikes only once an agent has been away for so long: a redeployment kills
nothing."""

_STOP_SECONDS = 1.0


@dataclass
class _Line:
    """The deliveries to one agent."""

    under_way: int = 0
    notices_under_way: int = 0
    hangs: bool = False
    refused_since: float | None = None
    """On the boot-time clock; ``None`` when the agent answered last time."""
    try_again_at: float = 0.0

    def room(self, now: Moment) -> int:
        """How many more deliveries it may be given now."""
        if self.refused_since is not None:
            return int(not self.under_way and now.boottime >= self.try_again_at)
        return max((1 if self.hangs else _MOST_UNDER_WAY) - self.under_way, 0)


class _Due(NamedTuple):
    agent: AgentRow
    claim: Claim
    receive: Receive | None
    """``None``: by webhook."""

    @property
    def agent_id(self) -> str:
        return self.agent.id

    @property
    def lease(self) -> LeaseKey:
        return self.claim.lease


class Dispatcher:
    """Deliveries from one kernel's file, by this process."""

    def __init__(self, core: Core, store: Store) -> None:
        self.store = store
        self._core = core
        self._clock = core.clock
        self._guard = threading.Lock()
        self._lines: dict[str, _Line] = {}
        self._hosted: dict[str, Receive] = {}
        self._deliver: Deliver | None = None
        self._crew = Crew("rebuno-delivery")
        self._wake = threading.Event()
        self._stopping = False
        self._recording = 0
        self._recorded = threading.Condition(self._guard)
        self._gone = False
        self._probe_at = 0.0
        self._thread: threading.Thread | None = None

    # -- whom it serves

    def deliver_webhooks(self, deliver: Deliver) -> None:
        """Deliver to every agent with a webhook from now on."""
        self._deliver = deliver
        self.wake()

    def host(self, agent_id: str, receive: Receive) -> None:
        """Give the attempts of an agent to ``receive``, whatever its webhook is."""
        with self._guard:
            if self._hosted.get(agent_id, receive) != receive:
                raise ValueError(
                    f"agent {agent_id!r} is hosted on this Kernel already, by another Agent of this"
                    " process; close that one first, or give this one an id of its own"
                )
            self._hosted = {**self._hosted, agent_id: receive}
        self.wake()

    def unhost(self, agent_id: str) -> None:
        """Give it no more."""
        with self._guard:
            self._hosted = {name: to for name, to in self._hosted.items() if name != agent_id}

    # -- the thread

    def start(self) -> None:
        """Start the thread, once."""
        with self._guard:
            if self._thread is None and not self._stopping:
                self.store.on_work_queued.append(self.wake)
                self._thread = threading.Thread(
                    target=self._loop, name="rebuno-dispatcher", daemon=True
                )
                self._thread.start()

    def wake(self) -> None:
        """Something may be due."""
        self._wake.set()

    def _loop(self) -> None:
        while not self._stopping:
            self._wake.clear()
            try:
                seconds = self.dispatch_once()
            except Exception as error:
                _log.error("nothing can be delivered for the moment: %s", error)
                seconds = _PROBE_SECONDS
            self._wake.wait(min(seconds, _POLL_SECONDS))

    def stop(self) -> None:
        """Claim nothing more; deliveries under way are waited for a moment."""
        self._stopping = True
        self.wake()
        if self._thread is not None:
            self.store.on_work_queued.remove(self.wake)
            self._thread.join(_STOP_SECONDS)
        self._crew.close(_STOP_SECONDS)
        with self._guard:
            # The file may be closed now: whoever still waits for an answer leaves it alone.
            self._gone = True
            self._recorded.wait_for(lambda: not self._recording, _STOP_SECONDS)

    def join(self, seconds: float) -> bool:
        """Wait until no delivery is under way; whether that is so."""
        return self._crew.join(seconds)

    # -- one round

    def dispatch_once(self) -> float:
        """Do what is due now; the seconds until something is due again."""
        now = Moment.of(self._clock)
        hosted, by_webhook = self._hosted, self._deliver is not None
        agendas = read_on_time(
            self.store,
            self._clock,
            lambda db: queue.agendas(db, json.dumps(list(hosted)), self.store.owner.nonce),
        )
        served = [a for a in agendas if by_webhook or a.agent_id in hosted]
        probes = any(a.held_elsewhere for a in served) and now.monotonic >= self._probe_at
        if probes:
            self._probe_at = now.monotonic + _PROBE_SECONDS
        ready = [
            (a.agent_id, self._line(a.agent_id).room(now))
            for a in served
            if _has_work(a, now) or (probes and a.held_elsewhere)
        ]
        ready = [(agent_id, room) for agent_id, room in ready if room]
        self._hand_out(self._claim(ready, hosted, now, probes=probes))
        if by_webhook:
            self._send_notices([a.agent_id for a in served if a.agent_id not in hosted])
        self._core.retention.sweep_if_due()
        return self._seconds_to_next(served, now)

    def _line(self, agent_id: str) -> _Line:
        with self._guard:
            return self._lines.setdefault(agent_id, _Line())

    def _claim(
        self,
        ready: list[tuple[str, int]],
        hosted: dict[str, Receive],
        now: Moment,
        *,
        probes: bool,
    ) -> list[_Due]:
        """Take as many attempts of each agent as it has room for. ``probes``: look as well whether
        the other processes that hold leases are alive."""
        if not ready:
            return []
        claim = Claiming(self.store, None, self._core.lease_timeout, now)

        def work(db: Connection) -> list[_Due]:
            claimed: list[_Due] = []
            for agent_id, room in ready:
                receive = hosted.get(agent_id)
                agent = registry.agent(db, agent_id)
                if agent is None:
                    continue
                waiting = queue.run_out(db, agent_id, now.monotonic)
                if probes:
                    waiting += queue.held_elsewhere(db, agent_id, self.store.owner.nonce)
                waiting += queue.due(db, agent_id, now.boottime, room)
                for execution_id, _ in waiting:
                    won = claim(execution_id, db, remote=receive is None)
                    if won is not None:
                        claimed.append(_Due(agent, won, receive))
                        room -= 1
                        if not room:
                            break
            return claimed

        return claim.committed(work)

    def _hand_out(self, claimed: list[_Due]) -> None:
        for due in claimed:
            line = self._line(due.agent_id)
            with self._guard:
                line.under_way += 1
            self._crew.hand(partial(self._carry, due, line))

    def _seconds_to_next(self, served: list[Agenda], now: Moment) -> float:
        """Until the next timer is over, or the next thing that an agent can be given."""
        timer = self.store.read(next_due)
        waits = [] if timer is None else [timer - now.boottime]
        for agenda in served:
            line = self._line(agenda.agent_id)
            if line.refused_since is not None:
                if agenda.due is not None and line.try_again_at > now.boottime:
                    waits.append(line.try_again_at - now.boottime)
            elif agenda.due is not None and agenda.due > now.boottime:
                waits.append(agenda.due - now.boottime)
            if agenda.lease_ends is not None and agenda.lease_ends > now.monotonic:
                waits.append(agenda.lease_ends - now.monotonic)
        return max(min(waits, default=_POLL_SECONDS), 0.001)

    # -- one delivery, in a thread of the crew

    def _carry(self, due: _Due, line: _Line) -> None:
        try:
            refused = self._attempt(due)
            self._record(lambda: self._settle(due, line, refused))
        except RebunoError as error:
            _log.warning("a delivery to %s was not recorded: %s", due.agent_id, error)
        finally:
            with self._guard:
                line.under_way -= 1
            self.wake()

    def _record(self, write: Callable[[], None]) -> None:
        with self._guard:
            if self._gone:
                return
            self._recording += 1
        try:
            write()
        finally:
            with self._guard:
                self._recording -= 1
                self._recorded.notify_all()

    def _attempt(self, due: _Due) -> Refused | None:
        if due.receive is not None:
            try:
                taken = due.receive(due.lease, due.claim.lease_seconds)
            except Exception:
                _log.exception("agent %s failed to take an attempt", due.agent_id)
                taken = False
            return None if taken else Refused("the agent takes no more work now", away=True)
        assert self._deliver is not None
        return deliver_webhook(self._deliver, due.agent, due.lease, due.claim.lease_seconds)

    def _settle(self, due: _Due, line: _Line, refused: Refused | None) -> None:
        now = Moment.of(self._clock)
        if refused is None:
            self._delivered(due, line, now)
            return
        if due.receive is not None and self._hosted.get(due.agent_id) != due.receive:
            self._give_back(due, now)
            return
        since = self._refused(line, refused, now)
        counts = since is None or now.boottime - since >= _PATIENCE_SECONDS
        random = self._clock.random()
        self.store.attempts.end(due.lease)
        failed = self.store.write(
            lambda db: dispatches.undelivered(
                db, due.lease, refused.reason, counts=counts, random=random, now=now
            ),
            durable=False,
        )
        if failed:
            _log.warning("execution %s: %s", due.lease.execution_id, refused.reason)
            return
        why = "its agent works on it, though the answer was lost"
        _log.info("execution %s: %s: %s", due.lease.execution_id, why, refused.reason)
        self._delivered(due, line, now, hangs=refused.hangs)

    def _refused(self, line: _Line, refused: Refused, now: Moment) -> float | None:
        """Take down how the agent is; since when it has been away, if it is."""
        with self._guard:
            line.hangs = refused.hangs
            if not refused.away:
                line.refused_since = None
            elif line.refused_since is None:
                line.refused_since = now.boottime
            line.try_again_at = now.boottime + _PROBE_SECONDS
            return line.refused_since

    def _give_back(self, due: _Due, now: Moment) -> None:
        """The agent has been closed meanwhile: another process may have the attempt at once."""
        self.store.attempts.end(due.lease)
        self.store.write(
            lambda db: dispatches.release(
                db, due.lease, interrupted=False, strike=False, random=0, now=now
            ),
            durable=False,
        )

    def _delivered(self, due: _Due, line: _Line, now: Moment, *, hangs: bool = False) -> None:
        with self._guard:
            was_away, line.refused_since, line.hangs = line.refused_since is not None, None, hangs

        def work(db: Connection) -> None:
            if due.receive is None:
                dispatches.delivered(db, due.lease, now)
            if was_away:
                queue.hasten(db, due.agent_id, now.wall, now.boottime)

        if due.receive is None or was_away:
            self.store.write(work, durable=False)

    # -- notices

    def _send_notices(self, agent_ids: list[str]) -> None:
        if not agent_ids or not self.store.read(lambda db: queue.notices_for(db, agent_ids)):
            return

        def work(db: Connection) -> list[tuple[Notice, AgentRow | None]]:
            taken = queue.take_notices(db, agent_ids)
            return [(notice, registry.agent(db, notice.agent_id)) for notice in taken]

        for notice, agent in self.store.write(work, durable=False):
            if agent is None:
                continue
            line = self._line(agent.id)
            with self._guard:
                if line.hangs or line.notices_under_way >= _MOST_NOTICES_UNDER_WAY:
                    continue  # It finds out at its next heartbeat.
                line.notices_under_way += 1
            self._crew.hand(partial(self._notify, notice, agent, line))

    def _notify(self, notice: Notice, agent: AgentRow, line: _Line) -> None:
        """Any answer is ignored."""
        assert self._deliver is not None
        lease = LeaseKey(notice.execution_id, notice.dispatch_id, notice.attempt)
        try:
            deliver_webhook(self._deliver, agent, lease, notice.lease_seconds, event="cancelled")
        finally:
            with self._guard:
                line.notices_under_way -= 1


def _has_work(agenda: Agenda, now: Moment) -> bool:
    waits = agenda.due is not None and agenda.due <= now.boottime
    lost = agenda.lease_ends is not None and agenda.lease_ends < now.monotonic
    return waits or lost
