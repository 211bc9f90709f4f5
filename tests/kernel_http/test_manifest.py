"""``rebuno-sync kernel --config`` (protocol.md 14.1), and the commands that copy."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from support.kernel_process import KernelProcess

from rebuno_sync.cli.manifest import ManifestError, Registration, read_manifest, register
from rebuno_sync.errors import ValidationError
from rebuno_sync.kernel import Kernel

MANIFEST = """
agents:
  - id: one
    webhook_url: ${SCHEME}://one.test/$HOOK
    secret: "$SECRET"
    lease_timeout_seconds: 30
    color: unknown keys are ignored
  - id: two
    secret: a$ $1 costs ${UNSET}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "rebuno.yaml"
    path.write_text(text)
    return path


def test_names_of_the_environment_are_replaced(tmp_path: Path) -> None:
    """``$NAME`` and ``${NAME}``; a name that is unset stays without braces, other dollars stay."""
    environment = {"SCHEME": "http", "HOOK": "h", "SECRET": "it's"}
    found = read_manifest(written(tmp_path, MANIFEST), environment)
    assert found == [
        Registration("one", "http://one.test/h", "it's", 30.0, None),
        Registration("two", "", "a$ $1 costs $UNSET", 0.0, None),
    ]
    assert "it's" not in repr(found)


def test_a_policy_may_be_a_file_beside_the_manifest(tmp_path: Path) -> None:
    """It is taken as it is."""
    (tmp_path / "p.yaml").write_text("rules: $HOME")
    text = "agents:\n- {id: a, policy_file: p.yaml}\n- {id: b, policy: 'rules: []'}\n"
    found = read_manifest(written(tmp_path, text), {})
    assert [one.policy for one in found] == ["rules: $HOME", "rules: []"]


@pytest.mark.parametrize("text", ["", "agents:\n", "agents: []\n", "other: 1\n"])
def test_a_manifest_without_agents(tmp_path: Path, text: str) -> None:
    assert read_manifest(written(tmp_path, text), {}) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("agents:\n- {secret: s}\n", r"agents\[0\]: id is required"),
        ("agents:\n- {id: a}\n- {id: ''}\n", r"agents\[1\]: id is required"),
        ("agents:\n- {id: a}\n- {id: a}\n", "'a' is listed twice"),
        ("agents:\n- {id: a, secret: 5}\n", r"agents\[0\]: secret must be a text"),
        ("agents:\n- {id: a, lease_timeout_seconds: x}\n", "lease_timeout_seconds must be"),
        ("agents:\n- {id: a, lease_timeout_seconds: .nan}\n", "lease_timeout_seconds must be"),
        (f"agents:\n- {{id: a, lease_timeout_seconds: {'9' * 400}}}\n", "at most 1000000000"),
        ("agents:\n- {id: a, secret: '${UNSET}'}\n", r"\$UNSET, which the environment does not"),
        ("agents:\n- {id: a, policy: p, policy_file: f}\n", "not both"),
        ("agents:\n- {id: a, policy_file: none.yaml}\n", r"policy_file: .*none\.yaml"),
        ("agents:\n- a\n", r"agents\[0\] must be a mapping"),
        ("agents: a\n", "must be a list"),
        ("- [\n", "line 2, is not YAML: expected the node content"),
        ("[" * 3000, "is not YAML"),
    ],
)
def test_a_manifest_that_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    """The file, the entry and what is wrong with it."""
    with pytest.raises(ManifestError, match=says) as raised:
        read_manifest(written(tmp_path, text), {})
    assert "rebuno.yaml" in str(raised.value)


@pytest.mark.parametrize("secret", ["s3cr3t: x", "*s3cr3t", "[s3cr3t", "!s3cr3t"])
def test_a_secret_is_in_no_complaint(tmp_path: Path, secret: str) -> None:
    """Though it is what makes a file no YAML: the line is named, and what helps."""
    path = written(tmp_path, "agents:\n- id: a\n  secret: $SECRET\n")
    with pytest.raises(ManifestError, match=r"line [34], is not YAML: .*put quotes") as raised:
        read_manifest(path, {"SECRET": secret})
    shown = "".join(traceback.format_exception(raised.value))
    assert "s3cr3t" not in shown


def test_a_key_that_is_unknown_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is ignored (protocol.md 14.1), but an agent whose address is misspelt waits for ever."""
    text = "token: t\nagents: [{id: one, webhok_url: 'http://x'}]"
    assert read_manifest(written(tmp_path, text), {}) == [of("one")]
    assert "unknown keys are ignored: token" in caplog.text
    assert "agents[0]: unknown keys are ignored: webhok_url" in caplog.text


def test_registering_replaces_and_adds(tmp_path: Path) -> None:
    """Agents that are not listed stay."""
    with Kernel(tmp_path / "kernel.db") as kernel:
        kernel.register_agent("one", webhook_url="http://old", secret="old")
        kernel.register_agent("three")
        register(
            kernel, read_manifest(written(tmp_path, MANIFEST), {"SCHEME": "http", "SECRET": "new"})
        )
        assert [agent.id for agent in kernel.agents()] == ["one", "three", "two"]
        assert kernel.core.agents.get("one").secret == "new"
        assert kernel.get_agent("one").lease_timeout_seconds == 30


DENY = "rules: [{id: none, then: {decision: deny}}]"


def of(agent_id: str, *, address: str = "", policy: str | None = None) -> Registration:
    return Registration(agent_id, address, "", 0, policy)


def test_policies_of_a_manifest(tmp_path: Path) -> None:
    """They are set as ``set_policy`` does. An agent that is listed without one keeps what it has,
    so that a restart allows nothing; an empty one removes it."""
    with Kernel(tmp_path / "kernel.db") as kernel:
        for agent_id in ("two", "three"):
            kernel.register_agent(agent_id)
            kernel.set_policy(agent_id, DENY)
        register(kernel, [of("one", policy=DENY), of("two", policy=""), of("three")])
        (kept,) = kernel.test_policy("three", cases=[{"target": "t"}]).results
        assert kept.decision == "deny"
        (found,) = kernel.test_policy("one", cases=[{"target": "t"}]).results
        assert (found.decision, found.rule_id) == ("deny", "none")
        with pytest.raises(ValidationError, match="has no policy"):
            kernel.test_policy("two")


def test_b29_a_policy_that_is_wrong_registers_nobody(tmp_path: Path) -> None:
    """Not even the agents before it; its agent and its line are named."""
    with Kernel(tmp_path / "kernel.db") as kernel:
        wrong = DENY.replace("deny", "perhaps")
        with pytest.raises(ManifestError, match=r"agent 'two': .*line 1.*decision"):
            register(kernel, [of("one", policy=DENY), of("two", policy=wrong)])
        assert kernel.agents() == []


def test_an_address_that_is_wrong(tmp_path: Path) -> None:
    """Its agent is named."""
    says = r"agent 'one': .*webhook_url must be"
    with Kernel(tmp_path / "kernel.db") as kernel, pytest.raises(ManifestError, match=says):
        register(kernel, [of("one", address="ftp://one.test")])


def test_a_kernel_starts_with_its_manifest(tmp_path: Path) -> None:
    """Its agents are there; of what is wrong it says so and does not start; secrets are in no
    output."""
    path = written(tmp_path, "agents:\n- {id: a, secret: s3cr3t}\n")
    with KernelProcess(tmp_path, "--config", str(path)) as process, process.client() as client:
        assert [agent.id for agent in client.agents()] == ["a"]
        assert "s3cr3t" not in process.said
        assert process.stop() == 0
    path.write_text("agents:\n- {secret: s3cr3t}\n")
    with KernelProcess(tmp_path, "--config", str(path)) as process:
        assert process.process.wait(30) == 1
        assert "agents[0]: id is required" in process.said
        assert "s3cr3t" not in process.said
    path.write_text("agents:\n- {id: a, policy: 'rules: 5'}\n")
    with KernelProcess(tmp_path, "--config", str(path)) as process:
        assert process.process.wait(30) == 1
        assert "the policy of agent 'a'" in process.said
        assert "Traceback" not in process.said


def test_a_file_that_others_can_read_is_told_of(tmp_path: Path) -> None:
    """It has the secrets of agents."""
    Kernel(tmp_path / "kernel.db").close()
    (tmp_path / "kernel.db").chmod(0o644)
    with KernelProcess(tmp_path) as process:
        process.says(r"others can read \S+kernel\.db \(mode 644\).*chmod 600")


# -- copies


def command(folder: Path, *arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "rebuno_sync", *arguments],
        cwd=folder,
        input=input,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "REBUNO_DB": str(folder / "kernel.db")},
    )


def test_the_commands_that_copy(tmp_path: Path) -> None:
    """Back up; export here, import there; what cannot be says why and exits with 1."""
    with Kernel(tmp_path / "kernel.db") as kernel, Kernel(tmp_path / "there.db") as there:
        for one in (kernel, there):
            one.register_agent("a")
        execution = kernel.create("a", {"n": 1})
        assert command(tmp_path, "backup", "copy.db").returncode == 0
        exported = command(tmp_path, "export", execution.id)
        assert exported.returncode == 0
        taken = command(tmp_path, "import", "-", "--db", "there.db", input=exported.stdout)
        assert taken.stdout == f"{execution.id}\n"
        assert there.get(execution.id).input == {"n": 1}
        again = command(tmp_path, "import", "-", input=exported.stdout)
        assert (again.returncode, "already" in again.stderr) == (1, True)
        nowhere = command(tmp_path, "backup", "copy2.db", "--db", "nowhere.db")
        assert (nowhere.returncode, "no file nowhere.db" in nowhere.stderr) == (1, True)
    with Kernel(tmp_path / "copy.db") as copy:
        assert copy.get(execution.id).input == {"n": 1}
