"""What a kernel answers, as a person reads it in a terminal."""

from __future__ import annotations

from datetime import UTC, datetime

from rebuno_sync.types import ApiKey, Execution, ExecutionStatus

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_repr_has_what_is_set() -> None:
    """No fields that are empty, and times and words as they are written."""
    execution = Execution(
        id="0f7e",
        agent_id="a",
        status=ExecutionStatus.RUNNING,
        created_at=AT,
        updated_at=AT,
        input={"n": 1},
    )
    assert repr(execution) == (
        "Execution(id='0f7e', agent_id='a', status='running',"
        " created_at='2026-01-02T03:04:05+00:00', updated_at='2026-01-02T03:04:05+00:00',"
        " input={'n': 1})"
    )


def test_a_repr_keeps_a_token_to_itself() -> None:
    """However short it is."""
    assert "sesame" not in repr(ApiKey(id="k", name="n", scopes=[], created_at=AT, token="sesame"))
