"""All tables of the matrix, by what they are about."""

from __future__ import annotations

from .agents import AGENTS
from .api_keys import API_KEYS
from .approvals import APPROVALS
from .cells import Table
from .keys import KEYS
from .leases import LEASES
from .operators import OPERATORS
from .outcomes import OUTCOMES
from .repeats import REPEATS
from .resources import RESOURCES
from .sessions import SESSIONS
from .states import ROWS
from .submits import SUBMITS

__all__ = ["EXECUTIONS", "TABLES"]

EXECUTIONS = Table(ROWS, (*SUBMITS, *OUTCOMES, *LEASES, *OPERATORS))

TABLES: dict[str, Table] = {
    "execution": EXECUTIONS,
    "request": REPEATS,
    "approval": APPROVALS,
    "api_key": API_KEYS,
    "session": SESSIONS,
    "key": KEYS,
    "resource": RESOURCES,
    "agent": AGENTS,
}
