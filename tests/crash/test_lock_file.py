"""A live owner counts as alive whatever becomes of the lock file; a forked child owns nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.children import ChildScript

from rebuno_sync.errors import StorageError
from rebuno_sync.kernel import Kernel

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize("does", ["nothing", "copy", "delete"])
def test_a_live_lease_outlasts_what_is_done_to_the_lock_file(tmp_path: Path, does: str) -> None:
    """Copying the file inside the process drops its lock, deleting it hides it: the lease holds."""
    go = tmp_path / "go"
    script = ChildScript(
        PROGRAMS / "lease_holder.py", tmp_path, db=tmp_path / "kernel.db", go=go, does=does
    )
    with script.start(name="first") as first:
        first.hears({"did": does})
        with script.start(name="second", does="nothing") as second:
            assert not second.ends_within(1.5)
            assert second.said == [], "a second body ran beside the first"
            go.touch()
            assert first.result() == second.result() == {"got": "first"}


@pytest.mark.parametrize("leaves", ["exit", "raise", "return"])
def test_a_forked_child_ends_nothing_of_its_parents(tmp_path: Path, leaves: str) -> None:
    """It leaves the body and the handler; it records nothing, and gives no lease back."""
    db, file = tmp_path / "kernel.db", tmp_path / "parent"
    options = ("-W", "error", "-W", "ignore::DeprecationWarning")
    script = ChildScript(PROGRAMS / "forked_child.py", tmp_path, options=options, db=db, file=file)
    with script.start(leaves=leaves) as child:
        assert child.result() == {"got": "the parent's"}
        assert child.said[0] == {"child": {"exit": 8, "raise": 7, "return": 7}[leaves]}
    with Kernel(db) as kernel:
        [execution] = kernel.list(agent_id="forks").executions
        assert execution.output == "the parent's"
        assert [step.status for step in kernel.list_steps(execution.id)] == ["succeeded"]


def test_a_file_with_two_names_is_refused(tmp_path: Path) -> None:
    """SQLite keeps a log for each name, and would lose what was recorded under the other."""
    with Kernel(tmp_path / "kernel.db"):
        pass
    (tmp_path / "other.db").hardlink_to(tmp_path / "kernel.db")
    for name in ("kernel.db", "other.db"):
        with pytest.raises(StorageError, match="hard link"):
            Kernel(tmp_path / name)
