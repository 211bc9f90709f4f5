"""Backups of a file in use, executions that move to another file, and files of other versions."""

from __future__ import annotations

import json
import resource
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attempts import background

from rebuno_sync.clock import ManualClock
from rebuno_sync.errors import ConflictError, NotFoundError, StorageError, ValidationError
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.store import Database, Store, tables
from rebuno_sync.types import Capture, Registration, Wake

from .moves import AGENT, ask_for, attempt, call, kinds, once, perform, start

LONG = {"messages": [{"content": "x" * 900, "n": n} for n in range(5)]}


@pytest.fixture
def other(tmp_path: Path, clock: ManualClock) -> Iterator[Kernel]:
    """A kernel on a file of its own."""
    with Kernel(tmp_path / "other.db", clock=clock) as kernel:
        kernel.register_agent(AGENT)
        yield kernel


# -- backups


def test_c28_a_backup_while_others_write(kernel: Kernel, tmp_path: Path) -> None:
    """It has everything up to one instant, whole executions only, and nobody waits for it long."""
    stop = threading.Event()

    def write() -> int:
        n = 0
        while not stop.is_set():
            kernel.agent.complete(attempt(kernel, kernel.create(AGENT, n).id), json.dumps(n))
            n += 1
        return n

    before = start(kernel)
    with background(write) as writing:
        kernel.backup(tmp_path / "copy.db")
        stop.set()
        assert writing.result() >= 0
    with Kernel(tmp_path / "copy.db") as copy:
        found = copy.list(limit=200).executions
        assert copy.get(before.execution_id).status == "running"
        for one in found:
            log = kinds(copy, one.id)
            assert (log[-1] == "execution.completed") is (one.status == "completed")
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600


def test_a_backup_overwrites_nothing(kernel: Kernel, path: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="overwrites nothing"):
        kernel.backup(path)
    with pytest.raises(StorageError, match="cannot create"):
        kernel.backup(tmp_path / "none" / "copy.db")


def test_a_backup_that_does_not_fit(kernel: Kernel, tmp_path: Path) -> None:
    """What is said names the copy, of which nothing is left; the kernel goes on."""
    kernel.create(AGENT, "x" * 400_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(StorageError, match=r"cannot write the backup \S+copy\.db"):
            kernel.backup(tmp_path / "copy.db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "copy.db").exists()
    kernel.create(AGENT)


# -- single executions


def test_an_execution_moves_to_another_file(kernel: Kernel, other: Kernel) -> None:
    """All that was recorded comes along, with the same ids."""
    execution = kernel.create(AGENT, LONG, idempotency_key="k")
    lease = attempt(kernel, execution.id)
    perform(kernel, lease, call(args=LONG), {"r": "\u00e9\u2028"})
    kernel.agent.complete(lease, '"out"')
    text = kernel.export_execution(execution.id)
    assert all(json.loads(line) for line in text.splitlines())
    taken = other.import_execution(text)
    assert taken == kernel.get(execution.id) == other.get(execution.id)
    assert other.list_steps(execution.id) == kernel.list_steps(execution.id)
    assert other.events(execution.id) == kernel.events(execution.id)
    assert other.create(AGENT, idempotency_key="k").id == execution.id
    assert other.export_execution(execution.id) == text


def test_steps_keep_their_order(kernel: Kernel, other: Kernel) -> None:
    """A later attempt there is told them as they were recorded here."""
    lease = start(kernel)
    done = [perform(kernel, lease, call("work", n)) for n in range(20)]
    other.import_execution(kernel.export_execution(lease.execution_id))
    for one in (kernel, other):
        assert [step.step_id for step in one.agent.recorded(lease.execution_id)] == done


def test_an_execution_that_has_not_ended_goes_on(kernel: Kernel, other: Kernel) -> None:
    """What was recorded replays, what was under way is met as after a crash."""
    lease = start(kernel)
    done = perform(kernel, lease, call("done"), 1)
    open_ = kernel.agent.submit(lease, once("open"))
    other.import_execution(kernel.export_execution(lease.execution_id))
    again = attempt(other, lease.execution_id)
    assert again.attempt == lease.attempt + 1
    replay = other.agent.submit(again, call("done"))
    assert (replay.decision, replay.step_id, replay.result) == ("replay", done, 1)
    unknown = other.agent.submit(again, once("open"))
    assert (unknown.step_id, unknown.error["reason"]) == (open_.step_id, "indeterminate")


def test_what_waits_for_a_person_moves_along(kernel: Kernel, other: Kernel) -> None:
    """The question has the same id there, and its answer lets the step run there."""
    ask_for(kernel, "charge")
    lease = start(kernel)
    blocked = kernel.agent.submit(lease, once())
    (asked,) = kernel.list_approvals()
    moved = other.import_execution(kernel.export_execution(lease.execution_id))
    assert moved == kernel.get(lease.execution_id)
    assert other.list_approvals() == [asked]
    other.grant_approval(asked.id, "ann")
    assert kernel.get_approval(asked.id).status == "pending"
    proceeds = other.agent.submit(attempt(other, lease.execution_id), once())
    assert (proceeds.decision, proceeds.step_id) == ("proceed", blocked.step_id)


def test_a_question_runs_out_in_the_other_file(tmp_path: Path, clock: ManualClock) -> None:
    """At the time it would have here, though the other machine counts from another boot."""
    elsewhere = ManualClock(boot_id="another")
    elsewhere.reboot("another")
    with (
        Kernel(tmp_path / "a.db", clock=clock) as kernel,
        Kernel(tmp_path / "b.db", clock=elsewhere) as other,
    ):
        for one in (kernel, other):
            one.register_agent(AGENT)
        ask_for(kernel, "charge")
        lease = start(kernel)
        kernel.agent.submit(lease, once())
        other.import_execution(kernel.export_execution(lease.execution_id))
        (asked,) = other.list_approvals()
        left = asked.timeout_at.timestamp() - elsewhere.wall() / 1e6
        elsewhere.advance(left - 1)
        assert other.get_approval(asked.id).status == "pending"
        elsewhere.advance(2)
        assert other.get_approval(asked.id).status == "expired"


def test_timers_go_on_in_the_other_file(tmp_path: Path, clock: ManualClock) -> None:
    """A deadline is where it was, though the other machine counts from another boot."""
    elsewhere = ManualClock(boot_id="another")
    elsewhere.reboot("another")
    with (
        Kernel(tmp_path / "a.db", deadline=100, clock=clock) as kernel,
        Kernel(tmp_path / "b.db", clock=elsewhere) as other,
    ):
        for one in (kernel, other):
            one.register_agent(AGENT)
        execution = kernel.create(AGENT)
        other.import_execution(kernel.export_execution(execution.id))
        elsewhere.advance(99)
        assert other.get(execution.id).status == "running"
        elsewhere.advance(2)
        assert other.get(execution.id).status == "cancelled"


def test_a_sleep_and_a_resource_move_along(kernel: Kernel, other: Kernel) -> None:
    """The execution wakes there when it would have here, and finds its resource as it was."""
    lease = start(kernel)
    repo = Registration("repo", "git", "{}", every_steps=1)
    view = kernel.agent.resources.register(lease, repo)
    kernel.agent.resources.keep(lease, [Capture("repo", view.generation, "ref")], [])
    sleep = kernel.agent.submit(lease, call("sleep"))
    assert kernel.agent.suspend(lease, Wake(sleep.step_id, 60))
    text = kernel.export_execution(lease.execution_id)
    other.import_execution(text)
    assert other.export_execution(lease.execution_id) == text
    assert other.claim(lease.execution_id) is None
    assert other.fork_points(lease.execution_id) == kernel.fork_points(lease.execution_id)


def test_an_execution_of_a_session_moves(kernel: Kernel, other: Kernel) -> None:
    """What waits for its session waits for it there; of those that have begun, there is one at a
    time in a file."""
    first, second = (kernel.create(AGENT, session="s") for _ in range(2))
    other.create(AGENT, session="s")
    with pytest.raises(ConflictError, match="session 's' has an execution here"):
        other.import_execution(kernel.export_execution(first.id))
    assert other.import_execution(kernel.export_execution(second.id)).status == "pending"


def test_a_parent_and_its_subagent_move(kernel: Kernel, other: Kernel) -> None:
    """In any order; the child's end settles the step that it stands for."""
    lease = start(kernel)
    step = kernel.agent.submit(lease, call()).step_id
    spawned_by = {"execution_id": lease.execution_id, "step_id": step}
    child = kernel.create(AGENT, spawned_by=spawned_by)
    for one in (child.id, lease.execution_id):
        other.import_execution(kernel.export_execution(one))
    assert other.get(child.id).spawned_by == spawned_by
    other.agent.complete(attempt(other, child.id), "7")
    (settled,) = other.list_steps(lease.execution_id)
    assert (settled.status, settled.result) == ("succeeded", 7)


def test_what_cannot_be_taken_in(kernel: Kernel, other: Kernel, clock: ManualClock) -> None:
    """Twice the same, a key that is used here, an unknown agent; and nothing is half done."""
    text = kernel.export_execution(kernel.create(AGENT, idempotency_key="k").id)
    other.create(AGENT, idempotency_key="k")
    with pytest.raises(ConflictError, match="key 'k'"):
        other.import_execution(text)
    with pytest.raises(ConflictError, match="already"):
        kernel.import_execution(text)
    stranger = text.replace(f'"agent_id":"{AGENT}"', '"agent_id":"stranger"')
    with pytest.raises(NotFoundError, match="stranger"):
        other.import_execution(stranger)
    with pytest.raises(NotFoundError):
        kernel.export_execution("00000000-0000-7000-8000-000000000007")
    assert len(other.list().executions) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('{"rebuno_execution":1', '{"rebuno_execution":2'),
        ('{"rebuno_execution":1', '{"rebuno":1'),
        ('"table":"events"', '"table":"agents"'),
        ('"table":"events"', '"table":"executions"'),
        ('"seq":1,', '"seq":1,"color":"red",'),
        ('"seq":1,', '"seq":[1],'),
        ('"seq":2,', '"seq":1,'),
        ('"seq":1,', ""),
        ('"input":"null"', '"input":null'),
        ('"due_at":', '"due_at":"x","was":'),
        ('"id":"0', '"id":"x'),
        ('"idempotency_key":null', '"idempotency_key":{}'),
        ('"status":"running"', '"status":"walking"'),
        ('"created_at":', '"created_at":9000'),
        ('"max_attempts":5', '"max_attempts":"five"'),
        ('"input":"null"', '"input":"nil"'),
        ('"type":"execution.started"', '"type":"weather.changed"'),
        ('"detail":"', '"detail":"{'),
        ("}\n", "}\n" + "[" * 9_000 + "\n"),
        ("}\n", "\n"),
        ("\n", ""),
    ],
)
def test_what_is_no_export(kernel: Kernel, other: Kernel, old: str, new: str) -> None:
    """Refused with its reason, and nothing is taken in."""
    text = kernel.export_execution(kernel.create(AGENT).id)
    assert old in text
    with pytest.raises(ValidationError, match="no export of an execution"):
        other.import_execution(text.replace(old, new))
    assert other.list().executions == []


def test_an_export_that_breaks_off(kernel: Kernel, other: Kernel) -> None:
    """Where a disk was full, say: whatever is missing, nothing is taken in."""
    lines = kernel.export_execution(kernel.create(AGENT).id).splitlines(keepends=True)
    for kept in range(len(lines)):
        with pytest.raises(ValidationError, match="no export of an execution"):
            other.import_execution("".join(lines[:kept]))
    assert other.list().executions == []
    other.import_execution("".join(lines))


# -- versions


class Second(Database):
    """As a later version will know files."""

    migrations = ("CREATE TABLE colors (name TEXT);\nINSERT INTO colors VALUES ('red');\n",)


class Broken(Database):
    migrations = ("CREATE TABLE colors (name TEXT);\nINSERT INTO nothing VALUES (1);\n",)


def version_of(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()


def test_a_file_of_an_earlier_version_is_brought_up(path: Path, clock: ManualClock) -> None:
    """What it has stays; a version that does not know the new one refuses it and changes
    nothing."""
    with Kernel(path, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        execution = kernel.create(AGENT)
    store = Store.open(path, clock, database_class=Second)
    names = store.read(lambda db: db.execute("SELECT name FROM colors").fetchall())
    found = store.read(lambda db: tables.execution(db, execution.id))
    store.close()
    assert names == [("red",)]
    assert found is not None
    with pytest.raises(StorageError, match="newer rebuno_sync"):
        Kernel(path, clock=clock)
    assert version_of(path) == 2


def test_a_new_file_takes_the_same_way(path: Path, clock: ManualClock) -> None:
    store = Store.open(path, clock, database_class=Second)
    assert store.read(lambda db: db.execute("SELECT name FROM colors").fetchall()) == [("red",)]
    store.close()


def test_a_migration_that_fails_changes_nothing(path: Path, clock: ManualClock) -> None:
    """The file can be used as before."""
    Kernel(path, clock=clock).close()
    with pytest.raises(StorageError):
        Store.open(path, clock, database_class=Broken)
    assert version_of(path) == 1
    Kernel(path, clock=clock).close()
