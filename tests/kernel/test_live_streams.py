"""``Kernel.stream``: what running steps receive, in process and from other processes."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from support.attempts import background
from support.children import ChildScript
from support.waiting import wait_until

from rebuno_sync import APIError, NotFoundError, StorageError
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Delta, LeaseKey, Proposal

from .moves import AGENT, start

PUBLISHER = Path(__file__).parent / "programs" / "publisher.py"


def begin(kernel: Kernel) -> tuple[LeaseKey, str]:
    """An attempt, and a step of it that is executing."""
    lease = start(kernel)
    return lease, kernel.agent.submit(lease, Proposal("llm_call", "m", "{}")).step_id


def test_every_piece_comes_in_order_until_the_execution_has_ended(kernel: Kernel) -> None:
    """Those from before the call are missing; what had come before the end is not."""
    lease, step_id = begin(kernel)
    kernel.agent.delta(lease, step_id, 0, "before")
    with kernel.stream(lease.execution_id) as stream:
        sent = [Delta(step_id, seq, f"piece {seq}") for seq in range(1, 30)]
        for delta in sent:
            kernel.agent.delta(lease, *delta)
        kernel.agent.complete_step(lease, step_id, "1")
        kernel.agent.complete(lease, "1")
        assert list(stream) == sent
        assert list(stream) == []


def test_a_piece_is_there_at_once(kernel: Kernel) -> None:
    """A listener need not wait for the next one, or for the end."""
    lease, step_id = begin(kernel)
    with kernel.stream(lease.execution_id) as stream, background(lambda: next(stream)) as taking:
        kernel.agent.delta(lease, step_id, 0, "word")
        assert taking.result() == Delta(step_id, 0, "word")


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


def test_closing_ends_it_in_whatever_thread_iterates(kernel: Kernel) -> None:
    """Nothing is raised, and the kernel has one listener less."""
    stream = kernel.stream(start(kernel).execution_id)
    with background(lambda: list(stream)) as iterating:
        stream.close()
        assert iterating.result() == []
    stream.close()
    assert kernel.core.deltas.streams == 0


def test_a_stream_ends_with_its_kernel(kernel: Kernel) -> None:
    """It says so: the execution goes on somewhere else."""
    stream = kernel.stream(start(kernel).execution_id)

    def listen() -> None:
        with pytest.raises(StorageError):
            next(stream)

    with background(listen) as listening:
        kernel.close()
        listening.result()


def test_one_that_was_forgotten_does_not_count_for_long(kernel: Kernel) -> None:
    """Who leaves a loop early and closes nothing uses up no place."""
    execution_id = start(kernel).execution_id
    kernel.core.deltas.most_streams = 1
    kernel.stream(execution_id)
    gc.collect()
    wait_until(lambda: kernel.core.deltas.streams == 0, "the forgotten stream being dropped")
    kernel.stream(execution_id).close()


def test_what_is_refused(kernel: Kernel) -> None:
    """An execution that is unknown, and more streams than a kernel has."""
    with pytest.raises(NotFoundError):
        kernel.stream("00000000-0000-7000-8000-000000000007")
    execution_id = start(kernel).execution_id
    kernel.core.deltas.most_streams = 1
    with kernel.stream(execution_id), pytest.raises(APIError, match="event streams open"):
        kernel.stream(execution_id)


def test_one_of_an_execution_that_has_ended_is_empty(kernel: Kernel) -> None:
    """It ends by itself."""
    execution = kernel.create(AGENT)
    kernel.cancel(execution.id)
    assert list(kernel.stream(execution.id)) == []
