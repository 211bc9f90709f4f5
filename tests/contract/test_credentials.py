"""Who is let in over HTTP (protocol.md 1.3 to 1.6). In process nobody stands between."""

from __future__ import annotations

from rebuno_sync.types import Renewal

from .deployments import AGENT, SECRET, Wired
from .moves import call, code_of, create, start
from .scenarios import over_http


@over_http
def test_b32_only_the_agents_secret_signs_for_it(on: Wired) -> None:
    """Whoever signs with another one, or for an agent that nobody registered, is refused whatever
    is asked, and changes nothing.
    """
    lease = start(on)
    for stranger in (on.signer(AGENT, SECRET + "x"), on.signer("nobody")):
        assert code_of(lambda it=stranger: it.submit(lease, call())) == "unauthorized"  # type: ignore[misc]
        assert code_of(lambda it=stranger: it.complete(lease, "1")) == "unauthorized"  # type: ignore[misc]
        assert code_of(lambda it=stranger: it.get_execution(lease.execution_id)) == "unauthorized"  # type: ignore[misc]
    assert on.signer(AGENT).renew([lease]) == [Renewal.ACCEPTED]
    assert on.operator.list_steps(lease.execution_id) == []
    assert on.operator.get(lease.execution_id).status == "running"


@over_http
def test_b32_only_the_token_is_an_operators(on: Wired) -> None:
    """Without it, or with another one, every operator's request is refused; with it, answered."""
    execution = create(on)
    for token in ("", on.token + "x", f"Bearer {on.token}"):
        somebody = on.bearer(token)
        assert code_of(lambda it=somebody: it.get(execution.id)) == "unauthorized"  # type: ignore[misc]
        assert code_of(lambda it=somebody: it.cancel(execution.id)) == "unauthorized"  # type: ignore[misc]
        assert code_of(lambda it=somebody: it.create(AGENT)) == "unauthorized"  # type: ignore[misc]
        assert code_of(lambda it=somebody: it.list_approvals()) == "unauthorized"  # type: ignore[misc]
    assert on.bearer(on.token).get(execution.id).status == "running"
