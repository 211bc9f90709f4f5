"""An agent mounted in gunicorn, whose workers are forked from a process that used it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.services import SECRET, TOKEN, Service
from support.waiting import wait_until

import rebuno_sync

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
LISTENING = re.compile(r"Listening at: (http://\S+)")


@pytest.mark.parametrize("kind", ["gthread", "sync"])
def test_c4_a_preloaded_agent_serves_in_every_worker(tmp_path: Path, kind: str) -> None:
    """The parent has served with it; four workers answer 100 executions, none is stuck or lost."""
    with Service(tmp_path) as service:
        given = {"url": service.url, "token": TOKEN, "secret": SECRET}
        roots = [Path(rebuno_sync.__file__).parent.parent, HERE / "programs"]
        environment = {
            **os.environ,
            "PRELOADED": json.dumps(given),
            "PYTHONPATH": os.pathsep.join(map(str, roots)),
        }
        log = tmp_path / "gunicorn.log"
        command = [
            *(sys.executable, "-m", "gunicorn", "--preload", "-w", "4", "-k", kind),
            *("--threads", "4" if kind == "gthread" else "1", "-b", "127.0.0.1:0"),
            "preloaded:app",
        ]
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, stdout=out, stderr=out, env=environment, cwd=tmp_path
            )
        try:
            found = wait_until(
                lambda: LISTENING.search(log.read_text()) or process.poll() is not None,
                "gunicorn listening",
            )
            assert isinstance(found, re.Match), log.read_text()
            service.client.register_agent("preloaded", found.group(1) + "/webhook", SECRET)
            ids = [service.client.create("preloaded", {"number": n}).id for n in range(100)]
            outputs = [service.client.wait(one, timeout=60).output for one in ids]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)
        assert [output["sum"] for output in outputs] == [n + 1 for n in range(100)]
        assert process.pid not in {output["pid"] for output in outputs}
        for one in ids:
            events = [event.type for event in service.client.events(one)]
            assert events.count("dispatch.acked") == 1
