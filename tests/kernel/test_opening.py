"""Opening the file: what is refused, how it is said, and that nothing is damaged."""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.children import ChildScript

from rebuno_sync.errors import StorageError
from rebuno_sync.kernel import Kernel

from .moves import AGENT, call, perform, start

PROGRAMS = Path(__file__).parent / "programs"


def _text(path: Path) -> None:
    path.write_text("Dear diary, today I bought a cow.\n" * 200)


def _short(path: Path) -> None:
    path.write_text("cow")


def _header_only(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 4080)


def _another_programs(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE cows (name TEXT)")
        db.execute("INSERT INTO cows VALUES ('Rosa')")


def _another_programs_with_an_id(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA application_id = 42")


def _another_programs_in_wal_mode(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE cows (name TEXT)")


def _newer(path: Path) -> None:
    with Kernel(path) as kernel:
        kernel.register_agent(AGENT)
        perform(kernel, start(kernel), call())
    with closing(sqlite3.connect(path)) as db, db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        db.execute(f"PRAGMA user_version = {version + 1}")


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "text": (_text, "not an SQLite database"),
    "three letters": (_short, "not an SQLite database"),
    "a broken header": (_header_only, "not an SQLite database|damaged|cannot be used"),
    "another program's": (_another_programs, "another program's"),
    "another program's, by its id": (_another_programs_with_an_id, "another program's"),
    "another program's, in WAL mode": (_another_programs_in_wal_mode, "another program's"),
    "a newer schema": (_newer, "newer rebuno_sync.*upgrade"),
}


@pytest.mark.parametrize("sort", REFUSED)
def test_c28_a_file_that_is_not_ours_is_left_alone(path: Path, sort: str) -> None:
    """One clear error that names the file, every time; not a byte of it changes."""
    make, message = REFUSED[sort]
    make(path)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(StorageError, match=message) as caught:
            Kernel(path)
        assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert not path.with_name(path.name + "-wal").exists()


def test_c28_a_file_in_use_by_a_newer_version_is_left_alone(path: Path) -> None:
    """Also while its newer owner has it open, with commits that are in the log only."""
    _newer(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as owner:
        owner.execute("PRAGMA wal_autocheckpoint = 0")
        owner.execute("INSERT INTO agents (id, registered_at) VALUES ('theirs', 0)")
        log = path.with_name(path.name + "-wal")
        before = path.read_bytes(), log.read_bytes()
        assert before[1]
        with pytest.raises(StorageError, match="newer"):
            Kernel(path)
        assert (path.read_bytes(), log.read_bytes()) == before
        assert owner.execute("SELECT count(*) FROM agents").fetchone() == (2,)


def test_an_empty_file_becomes_a_kernel(path: Path) -> None:
    """A file of no bytes, as `touch` or `mktemp` leave it, is taken over."""
    path.touch()
    with Kernel(path) as kernel:
        kernel.register_agent(AGENT)
        assert kernel.create(AGENT).status == "running"


def test_c28_a_folder_is_no_file(tmp_path: Path) -> None:
    """A path that names a folder is refused by its name."""
    with pytest.raises(StorageError, match="is a folder") as caught:
        Kernel(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_c28_below_a_file_there_is_no_folder(tmp_path: Path) -> None:
    """When the folder cannot be made the error says which, and how to name another file."""
    (tmp_path / "file").write_text("kept")
    for path in (tmp_path / "file" / "kernel.db", tmp_path / "file" / "folder" / "kernel.db"):
        with pytest.raises(StorageError, match="REBUNO_DB") as caught:
            Kernel(path)
        assert str(path.parent) in str(caught.value)
    assert (tmp_path / "file").read_text() == "kept"


def test_folders_are_made(tmp_path: Path) -> None:
    """Missing folders are created, for their owner only."""
    path = tmp_path / "a" / "b" / "kernel.db"
    Kernel(path).close()
    assert path.exists()
    assert stat.S_IMODE(path.parent.stat().st_mode) & 0o077 == 0


def test_a_file_that_is_made_is_told_of(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A mistyped path is an empty kernel: the log says so, and nothing of one that was there."""
    caplog.set_level("INFO")
    Kernel(path).close()
    assert f"{path} did not exist" in caplog.text
    caplog.clear()
    Kernel(path).close()
    assert "did not exist" not in caplog.text


def test_files_are_for_their_owner_only(path: Path) -> None:
    """Whatever the umask: the database, its log, the log's index and the lock file have
    mode 0600.
    """
    mask = os.umask(0)
    try:
        with Kernel(path) as kernel:
            kernel.register_agent(AGENT)
            modes = {
                entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()
            }
    finally:
        os.umask(mask)
    assert set(modes) == {"kernel.db", "kernel.db-wal", "kernel.db-shm", "kernel.db-lock"}
    assert set(modes.values()) == {0o600}


def test_a_mode_that_somebody_chose_stays(path: Path) -> None:
    """A file that exists keeps its mode: it may be meant for a group."""
    Kernel(path).close()
    path.chmod(0o640)
    Kernel(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can reach."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


@pytest.mark.parametrize("sort", ["folder", "new file", "file", "lock file", "all of it"])
def test_c28_what_may_not_be_written_is_refused(public: Path, tmp_path: Path, sort: str) -> None:
    """In a folder, or of a file, that this user may only read: one clear error, and nothing
    damaged.
    """
    path = public / "kernel.db"
    lock = path.with_name("kernel.db-lock")
    if sort == "folder":
        path = public / "folder" / "kernel.db"
    elif sort != "new file":
        Kernel(path).close()
        path.chmod(0o444 if sort != "lock file" else 0o666)
        lock.chmod(0o444 if sort != "file" else 0o666)
    if sort in ("folder", "new file", "all of it"):
        public.chmod(0o555)
    before = path.read_bytes() if path.exists() else None
    program = ChildScript(PROGRAMS / "unprivileged.py", tmp_path)
    error, message = program.run(db=path)
    assert error == "StorageError"
    assert str(public) in message
    assert "writ" in message or "Permission denied" in message or "REBUNO_DB" in message
    assert (path.read_bytes() if path.exists() else None) == before
    public.chmod(0o777)


def test_a_refused_file_can_be_opened_once_it_is_right(path: Path) -> None:
    """A failed opening leaves nothing behind that would be in the way of the next one."""
    _text(path)
    with pytest.raises(StorageError):
        Kernel(path)
    path.unlink()
    with Kernel(path) as kernel:
        kernel.register_agent(AGENT)
        lease = start(kernel)
        assert kernel.claim(lease.execution_id) is None
