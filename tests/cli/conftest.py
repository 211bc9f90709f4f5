"""A kernel with agents, and consoles that ask it: at its file, and over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.http import KernelApp
from rebuno_sync.serving import Server
from rebuno_sync.types import LeaseKey, Proposal

from .console import Console

TOKEN = "operators"

POLICY = """\
default_action: allow
rules:
  - id: refunds
    when: {target: refund}
    then:
      decision: require_approval
      approval_config: {approvers: [alice], timeout: 24h, message: "Refund it?"}
"""


@pytest.fixture(autouse=True)
def no_other_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of whoever runs the tests name none."""
    for name in ("URL", "DB", "API_KEY", "BEARER_TOKEN"):
        monkeypatch.delenv(f"REBUNO_{name}", raising=False)
    monkeypatch.setenv("USER", "operator")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kernel.db"


@pytest.fixture
def kernel(path: Path) -> Iterator[Kernel]:
    with Kernel(path) as kernel:
        kernel.register_agent("support")
        kernel.set_policy("support", POLICY)
        kernel.register_agent("plain")
        yield kernel


@pytest.fixture
def served(kernel: Kernel) -> Iterator[str]:
    """The kernel's URL."""
    server = Server(KernelApp(kernel, TOKEN), "127.0.0.1", 0)
    yield server.url
    server.close()


@pytest.fixture(params=["file", "http"])
def console(
    request: pytest.FixtureRequest, kernel: Kernel, capsys: pytest.CaptureFixture[str]
) -> Console:
    """One for each road to the kernel."""
    if request.param == "file":
        return Console(["--db", str(kernel.path)], capsys)
    url: str = request.getfixturevalue("served")
    return Console(["--kernel", url, "--token", TOKEN], capsys)


def begin(kernel: Kernel, agent: str = "support", **options: str) -> LeaseKey:
    """A new execution and its first attempt."""
    claim = kernel.claim(kernel.create(agent, {"order": "A-17"}, **options).id)  # type: ignore[arg-type]
    assert claim is not None
    return claim.lease


def ask(kernel: Kernel, **args: object) -> str:
    """Have an execution that waits for a person; the approval's id."""
    lease = begin(kernel)
    decision = kernel.agent.submit(lease, Proposal("tool_call", "refund", json.dumps(args)))
    assert decision.decision == "blocked"
    return decision.approval_id


def step(kernel: Kernel, lease: LeaseKey, target: str, result: object) -> str:
    """A step that succeeds; its id."""
    step_id = kernel.agent.submit(lease, Proposal("tool_call", target, '{"n":1}')).step_id
    kernel.agent.complete_step(lease, step_id, json.dumps(result))
    return step_id
