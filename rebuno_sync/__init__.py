"""Durable execution for ordinary blocking Python."""

from . import errors, types
from .agent import Outcome
from .client import Client
from .context import execution
from .durable import now, random, sleep, uuid4
from .effects import step, tool, wrap_tool
from .errors import (
    APIError,
    Blocked,
    CheckpointUnavailable,
    CodeChanged,
    ConflictError,
    ExecutionCancelled,
    ExecutionFailed,
    ForbiddenError,
    Interrupted,
    LeaseSuperseded,
    NetworkError,
    NoActiveExecution,
    NotFoundError,
    PolicyError,
    RateLimited,
    RebunoError,
    Signal,
    StepTimeout,
    StorageError,
    Terminated,
    ToolError,
    UnauthorizedError,
    ValidationError,
    failure_reason,
)
from .host import Agent
from .llm import http_client, httpx_client
from .local import run
from .parallelism import parallel
from .patching import patched
from .pool import ThreadPoolExecutor, carry
from .refusals import raise_for_refusal
from .resources import CheckpointPolicy, resource
from .subagents import previous, subagent
from .types import Result

__all__ = [
    "APIError",
    "Agent",
    "Blocked",
    "CheckpointPolicy",
    "CheckpointUnavailable",
    "Client",
    "CodeChanged",
    "ConflictError",
    "ExecutionCancelled",
    "ExecutionFailed",
    "ForbiddenError",
    "Interrupted",
    "LeaseSuperseded",
    "NetworkError",
    "NoActiveExecution",
    "NotFoundError",
    "Outcome",
    "PolicyError",
    "RateLimited",
    "RebunoError",
    "Result",
    "Signal",
    "StepTimeout",
    "StorageError",
    "Terminated",
    "ThreadPoolExecutor",
    "ToolError",
    "UnauthorizedError",
    "ValidationError",
    "carry",
    "errors",
    "execution",
    "failure_reason",
    "http_client",
    "httpx_client",
    "now",
    "parallel",
    "patched",
    "previous",
    "raise_for_refusal",
    "random",
    "resource",
    "run",
    "sleep",
    "step",
    "subagent",
    "tool",
    "types",
    "uuid4",
    "wrap_tool",
]
