"""Whether a process runs, as a second witness beside its lock byte.

A byte can be lost by accident (see ``locks``); a process that has died cannot be found. Where
nothing can be found out (another pid namespace, a platform without ``/proc``) the byte decides.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["process_mark", "still_runs"]

_STATE, _STARTED = 0, 19
"""Fields of ``/proc/<pid>/stat`` after the command's name."""


def process_mark(pid: int) -> str:
    """A process's pid namespace and start time; empty when it has ended or none can tell."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    if fields[_STATE] in "ZX":  # It has ended, and its parent has not asked yet.
        return ""
    return f"{namespace} {fields[_STARTED]}"


def still_runs(pid: int, mark: str) -> bool:
    """Whether the process with that mark is known to run."""
    return bool(mark) and process_mark(pid) == mark
