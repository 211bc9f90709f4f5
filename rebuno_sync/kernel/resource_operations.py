"""What an agent may ask about resources under its lease (protocol.md 2.2, 9.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..types import Registration, StepDecision
from . import resources
from .moment import Moment
from .operations import DONE, Answer, Asked, Silent, not_ended, pass_fence
from .resources import Captures
from .store import Connection
from .store.rows import Standing

__all__ = ["Bind", "Checkpoint", "Register"]


class _UnderLease(Silent):
    """Checks who asks; then does it, which may be repeated."""

    __slots__ = ()

    durable: ClassVar[bool] = True

    def apply(self, db: Connection, asked: Asked, now: Moment) -> Answer:
        at = not_ended(db, asked, now)
        pass_fence(db, at, asked, now)
        return self.do(db, at, now)

    def do(self, db: Connection, at: Standing, now: Moment) -> Answer:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Register(_UnderLease):
    wanted: Registration

    def do(self, db: Connection, at: Standing, now: Moment) -> Answer:
        resources.check_registration(self.wanted)
        row = resources.register(db, at.execution, self.wanted, now)
        return Answer(200, view=resources.view(db, at.execution, row))

    def again(self, db: Connection, at: Standing, kept: StepDecision) -> Answer:
        row = resources.find(db, at.execution, self.wanted.key)
        return Answer(200, view=resources.view(db, at.execution, row))


@dataclass(frozen=True, slots=True)
class Bind(_UnderLease):
    key: str
    binding: str
    """JSON."""

    def do(self, db: Connection, at: Standing, now: Moment) -> Answer:
        resources.bind(db, at.execution, self.key, self.binding, now)
        return DONE


@dataclass(frozen=True, slots=True)
class Checkpoint(_UnderLease):
    told: Captures

    def do(self, db: Connection, at: Standing, now: Moment) -> Answer:
        resources.checkpoint(db, at.execution, self.told, now)
        return DONE
