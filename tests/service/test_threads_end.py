"""What is closed leaves no thread behind."""

from __future__ import annotations

import threading
from pathlib import Path

from support.services import Service
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel


def ours() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("rebuno-")}


def handler() -> int:
    """Its outcome is sent by itself: nothing of the handler's comes for it to travel with."""
    value = rebuno.step("one", lambda: 1)
    execution = rebuno.execution()
    execution.wait(0.05)
    return value


def test_nothing_runs_on_after_all_was_closed(tmp_path: Path) -> None:
    """Agents at a URL and in the process, a client, a kernel that is served and one that is used
    by two: what each had started ends with it, and starts again for the next."""
    of_others = ours()
    for round_ in ("first", "second"):
        folder = tmp_path / round_
        folder.mkdir()
        with Service(folder) as service:
            service.agent(handler)
            assert service.run() == 1
            hosted = rebuno.Agent("hosted", kernel=service.kernel)
            hosted.bind(handler)
            assert service.kernel.wait(service.kernel.create("hosted").id, timeout=20).output == 1
            with Kernel(service.kernel.path) as second:
                assert rebuno.run(handler, kernel=second) == 1
            assert "rebuno-commits" in {thread.name for thread in ours()}, "it is still open"
            hosted.close()
        wait_until(lambda: not ours() - of_others, f"the end of the {round_} round's threads")
