"""The parent imports, builds and uses everything once; then its children serve (C4).

A hundred requests each: all are answered, none hangs, no database is locked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import celery
import pytest
import requests
from support.kernel_process import Command
from support.redis_server import redis_server

from .conftest import PROGRAMS, Environment

pytestmark = pytest.mark.slow

REQUESTS = 100

Broker = Callable[[Path], AbstractContextManager[dict[str, Any]]]


def check(results: list[dict[str, int]], parent: int, most: int) -> None:
    """Every answer is right, and the parent gave none; at most that many processes did."""
    assert [result["sum"] for result in results] == [number + 1 for number in range(REQUESTS)]
    pids = {result["pid"] for result in results}
    assert parent not in pids
    assert len(pids) <= most


@pytest.mark.parametrize("kind", ["gthread", "sync"])
def test_c4_a_preloaded_flask_application_runs_executions_in_every_worker(
    tmp_path: Path, environment: Environment, kind: str
) -> None:
    command = [sys.executable, "-m", "gunicorn", "--preload", "-w", "4", "-k", kind]
    command += [
        "--threads",
        "4" if kind == "gthread" else "1",
        "-b",
        "127.0.0.1:0",
        "flask_app:app",
    ]
    with Command(command, tmp_path, "gunicorn", **environment()) as gunicorn:
        url = gunicorn.says(r"Listening at: (http://\S+)").group(1)
        with ThreadPoolExecutor(8) as pool:
            answers = list(
                pool.map(lambda n: requests.get(f"{url}/{n}", timeout=60), range(REQUESTS))
            )
        assert {answer.status_code for answer in answers} == {200}, gunicorn.said
        check([answer.json() for answer in answers], gunicorn.process.pid, 4)
        gunicorn.stop()
        assert "locked" not in gunicorn.said


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_c4_a_multiprocessing_pool_runs_executions(
    tmp_path: Path, environment: Environment, method: str
) -> None:
    """Forked children use what they inherited, spawned ones build their own."""
    process = subprocess.Popen(
        [sys.executable, PROGRAMS / "pools.py", method],
        env={**os.environ, **environment()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "locked" not in err
    check(json.loads(out), process.pid, 4)


def test_c4_children_of_os_fork_run_executions(tmp_path: Path, environment: Environment) -> None:
    """A hundred each, of the parent's kernel and of a served one; the parent goes on as well."""
    process = subprocess.Popen(
        [sys.executable, PROGRAMS / "forks.py"],
        env={**os.environ, **environment()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "locked" not in err
    said = json.loads(out)
    assert said["statuses"] == [0] * 4, err
    assert said["here"] == {"sum": -process.pid, "pid": process.pid}
    results = said["results"]
    assert [len({one["pid"] for one in of_child}) for of_child in results] == [1] * 4
    pids = {one["pid"] for of_child in results for one in of_child}
    assert len(pids) == 4
    assert process.pid not in pids
    sums = [one["sum"] for of_child in results for one in of_child]
    assert sums == list(range(1, 4 * REQUESTS + 1))


@contextmanager
def over_files(folder: Path) -> Iterator[dict[str, Any]]:
    """A broker that needs no server."""
    for name in ("messages", "control", "results"):
        (folder / name).mkdir()
    messages = str(folder / "messages")
    transport = {
        "data_folder_in": messages,
        "data_folder_out": messages,
        "control_folder": str(folder / "control"),
    }
    yield {
        "broker": "filesystem://",
        "backend": f"file://{folder / 'results'}",
        "transport": transport,
    }


@contextmanager
def over_redis(folder: Path) -> Iterator[dict[str, Any]]:
    with redis_server(folder) as url:
        yield {"broker": url, "backend": url, "transport": {}}


@pytest.mark.parametrize("pool", ["prefork", "threads"])
@pytest.mark.parametrize(
    "broker", [over_files, pytest.param(over_redis, marks=pytest.mark.services)]
)
def test_c3_c4_a_celery_worker_runs_executions(
    tmp_path: Path, environment: Environment, pool: str, broker: Broker
) -> None:
    """In four forked processes, and in four threads; the worker has used everything before."""
    command = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "-l", "info"]
    command += ["-P", pool, "-c", "4", "--without-gossip", "--without-mingle"]
    with (
        broker(tmp_path) as given,
        closing(application(given)) as app,
        Command(command, tmp_path, "celery", **environment(**given)) as worker,
    ):
        worker.says(r"celery@\S+ ready", 60)
        sent = [app.send_task("run", [number]) for number in range(REQUESTS)]
        results = [one.get(timeout=60, interval=0.05) for one in sent]
        parent = worker.process.pid if pool == "prefork" else 0
        check(results, parent, 4)
        worker.stop()
        assert "locked" not in worker.said


def application(given: dict[str, Any]) -> celery.Celery:
    """As the sender has it."""
    app = celery.Celery("of_the_test", broker=given["broker"], backend=given["backend"])
    app.conf.update(broker_transport_options=given["transport"], task_serializer="json")
    return app
