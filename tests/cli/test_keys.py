"""``rebuno-sync keys``: the API keys of a kernel."""

from __future__ import annotations

import re

from support.waiting import wait_until

from rebuno_sync import Client, UnauthorizedError
from rebuno_sync.kernel import Kernel

from .console import Console


def test_a_token_is_printed_once_and_opens_what_its_scopes_say(
    served: str, console: Console
) -> None:
    """Afterwards nothing shows it again."""
    scopes = ("--scope", "agents:read", "--scope", "executions:read")
    made = console.done("keys", "create", "dashboard", *scopes)
    found = re.search(r"rbk_\S+", made)
    assert found is not None
    with Client(served, found.group()) as client:
        assert [agent.id for agent in client.agents()] == ["plain", "support"]
    listed = console.done("keys", "list")
    assert "dashboard" in listed
    assert "rbk_" not in listed + str(console.json("keys", "list"))


def test_rotating_and_revoking_end_a_token(kernel: Kernel, served: str, console: Console) -> None:
    """The new one opens what the old one did; a revoked key opens nothing, within a moment."""
    key = console.json("keys", "create", "job", "--scope", "agents:read")
    new = console.json("keys", "rotate", key["id"])["token"]
    assert new != key["token"]
    assert opens(served, new)
    wait_until(lambda: not opens(served, key["token"]), "the old token ending")
    assert console.done("keys", "revoke", key["id"]) == f"revoked {key['id']}\n"
    wait_until(lambda: not opens(served, new), "the revoked key ending")
    assert kernel.list_keys()[0].revoked_at is not None
    again = console("keys", "rotate", key["id"])
    assert (again.code, "revoked" in again.err) == (1, True)


def opens(url: str, token: str) -> bool:
    with Client(url, token) as client:
        try:
            client.agents()
        except UnauthorizedError:
            return False
    return True


def test_a_key_needs_scopes_that_there_are(console: Console) -> None:
    """Bad usage names them."""
    assert console("keys", "create", "x").code == 2
    said = console("keys", "create", "x", "--scope", "everything")
    assert (said.code, "approvals:write" in said.err) == (2, True)
    unknown = console("keys", "revoke", "00000000-0000-7000-8000-000000000007")
    assert (unknown.code, "rebuno-sync keys list" in unknown.err) == (1, True)
