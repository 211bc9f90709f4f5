"""A kernel, an agent of a release and a client of it, which the tests of a session share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.effect_log import EffectLog
from support.kernel_process import Command, KernelProcess, free_port
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.serving import Server
from rebuno_sync.types import Execution

from .environments import PROGRAMS, Environments, Release, variables
from .operators import AsyncOperator

__all__ = ["AGENT", "SECRET", "Site", "Sites"]

AGENT, SECRET = "peer", "the peer's secret"


class Site:
    """``client`` is ours; ``operator`` theirs. The agent does what an input says: ``{"act": name,
    "given": its arguments}``, as ``programs/async_acts.py`` has it.
    """

    def __init__(self, python: Path, folder: Path, release: Release, *, described: bool) -> None:
        folder.mkdir()
        self.log = EffectLog(folder / "effects", synced=False)
        self.kernel = KernelProcess(folder, "--lease-timeout", "2")
        self.client = self.kernel.client()
        self.operator = AsyncOperator(python, self.kernel.url, self.kernel.TOKEN)
        port = free_port()
        self._webhook = f"http://127.0.0.1:{port}/webhook"
        self._signature = "body" if release.signature == "body" else None
        self._serve()
        given = {
            "agent": AGENT,
            "secret": SECRET,
            "url": self.kernel.url,
            "token": self.kernel.TOKEN,
            "port": port,
            "log": str(self.log.path),
            "folder": str(folder),
            "described": described,
        }
        command: list[str | Path] = [python, PROGRAMS / "async_acts.py", json.dumps(given)]
        self.agent = Command(command, folder, "agent", **variables()).listens(port)
        self.metadata = self._published() if described else None
        """What the agent said of itself when it began: a new registration forgets it."""

    def _serve(self) -> None:
        self.client.register_agent(AGENT, self._webhook, SECRET, signature=self._signature)

    def _published(self) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            return self.client.get_agent(AGENT).metadata

        metadata = wait_until(look, "the agent saying what it is")
        assert metadata is not None
        return metadata

    def govern(self, *rules: dict[str, Any]) -> None:
        """Give the agent a policy that allows what none of the rules matches; or none."""
        bundle = {"default_action": "allow", "rules": rules}
        self.client.set_policy(AGENT, json.dumps(bundle) if rules else "")

    def begin(self, act: str, *, of_session: str = "", **given: Any) -> str:
        """Have the agent act; the execution."""
        input = {"act": act, "given": given}
        return self.client.create(AGENT, input, session=of_session or None).id

    def end(self, execution_id: str) -> Any:
        """The output of an execution, once it has completed."""
        return self.client.wait(execution_id, timeout=30).output

    def act(self, act: str, **given: Any) -> Any:
        return self.end(self.begin(act, **given))

    def fails(self, act: str, **given: Any) -> str:
        """Have the agent act and fail; the reason."""
        try:
            output = self.act(act, **given)
        except rebuno.ExecutionFailed as error:
            return error.reason
        raise AssertionError(f"{act} completed with {output!r}")

    def asked(self, execution_id: str) -> dict[str, Any]:
        """The approval that an execution waits for, as the async client lists it."""

        def look() -> list[dict[str, Any]]:
            listed = self.operator.ask("list_approvals")
            return [it for it in listed if it["execution_id"] == execution_id]

        [approval] = wait_until(look, "the agent asking")
        return approval

    def told(self, execution_id: str) -> list[str]:
        """The types of an execution's events, but for those of deliveries."""
        events = [event.type for event in self.client.events(execution_id)]
        return [it for it in events if not it.startswith("dispatch.")]

    def children(self, agent_id: str, execution_id: str) -> list[Execution]:
        """What an execution has spawned of an agent."""
        found = self.client.list(agent_id=agent_id).executions
        return [it for it in found if (it.spawned_by or {}).get("execution_id") == execution_id]

    @contextmanager
    def ours(self, agent_id: str, handler: Callable[..., Any]) -> Iterator[rebuno.Agent]:
        """An agent of this process, registered; in the place of theirs where it has its id."""
        agent = rebuno.Agent(agent_id, secret=SECRET, base_url=self.kernel.url)
        agent.bind(handler)
        server = Server(agent.app, "127.0.0.1", 0)
        try:
            self.client.register_agent(agent_id, server.url + agent.webhook_path, SECRET)
            yield agent
        finally:
            agent.close()
            server.close()
            if agent_id == AGENT:
                self._serve()

    def close(self) -> None:
        self.agent.kill()
        self.operator.close()
        self.client.close()
        self.kernel.kill()


class Sites:
    """One for each release, made when first asked for."""

    def __init__(self, environments: Environments, folder: Path) -> None:
        self._environments = environments
        self._folder = folder
        self._made: dict[Release, Site] = {}

    def of(self, release: Release, *, described: bool) -> Site:
        if release not in self._made:
            python = self._environments.python(release)
            folder = self._folder / release.version
            self._made[release] = Site(python, folder, release, described=described)
        return self._made[release]

    def close(self) -> None:
        for site in self._made.values():
            site.close()
