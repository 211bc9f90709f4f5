"""Listening in process to what running steps receive (protocol.md 8.4)."""

from __future__ import annotations

from pathlib import Path

from support.attempts import background
from support.children import ChildScript

from rebuno_sync.kernel import Kernel

from .moves import AGENT, call, start

PUBLISHER = Path(__file__).parent / "programs" / "publisher.py"


def test_a_stream_ends_with_its_execution(kernel: Kernel) -> None:
    """What was published before comes first."""
    lease = start(kernel)
    step_id = kernel.agent.submit(lease, call()).step_id
    stream = kernel.stream(lease.execution_id)
    kernel.agent.delta(lease, step_id, 0, "last")
    kernel.agent.complete(lease, "null")
    assert [delta.data for delta in stream] == ["last"]


def test_a_stream_that_is_closed_ends(kernel: Kernel) -> None:
    """Also for a thread that waits for its next delta."""
    stream = kernel.stream(start(kernel).execution_id)
    with background(lambda: list(stream)) as rest:
        stream.close()
        assert rest.result(10) == []


def test_a_stream_ends_with_its_kernel(kernel: Kernel) -> None:
    """Whoever waits is woken."""
    stream = kernel.stream(start(kernel).execution_id)
    kernel.close()
    assert list(stream) == []


def test_a_stream_that_is_dropped_is_none(kernel: Kernel) -> None:
    """Nobody has to close it for others to be served."""
    kernel.core.deltas.most_streams = 2
    execution_id = start(kernel).execution_id
    kept = kernel.stream(execution_id)
    for _ in range(5):
        kernel.stream(execution_id)
    assert kernel.core.deltas.streams == 2
    kept.close()


def test_pieces_of_another_process_come_too(path: Path, tmp_path: Path) -> None:
    """By the file that both have open; the stream ends with the execution."""
    with Kernel(path) as kernel:
        kernel.register_agent(AGENT)
        execution = kernel.create(AGENT)
        with kernel.stream(execution.id) as stream:
            publisher = ChildScript(PUBLISHER, tmp_path, db=path, pieces=40)
            with publisher.start(execution_id=execution.id) as child:
                assert [delta.data for delta in stream] == [f"piece {seq}" for seq in range(40)]
                assert child.returncode() == 0
