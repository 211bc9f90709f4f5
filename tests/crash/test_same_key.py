"""Many callers of one key at once: one of them runs it, all get its result, and soon."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import flask
import pytest
from support.children import ChildScript
from support.effect_log import EffectLog
from werkzeug.serving import make_server

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

PROGRAM = Path(__file__).parent / "programs" / "same_key.py"
CALLERS = 8
WAKE_SECONDS = 0.1


def check(answers: list[dict[str, Any]], log: EffectLog) -> None:
    assert len(answers) == CALLERS
    assert log.count("slow") == 1
    assert len({answer["ended"] for answer in answers}) == 1
    lags = [answer["lag"] for answer in answers]
    print(f"results {min(lags) * 1000:.0f} to {max(lags) * 1000:.0f} ms after the body's end")
    assert max(lags) < WAKE_SECONDS


@pytest.mark.parametrize("processes", [1, CALLERS], ids=["threads", "processes"])
def test_c19_callers_of_one_key_share_one_run(tmp_path: Path, processes: int) -> None:
    """Eight threads, or eight processes, run the same key around a tool of one second: its body
    runs once, all get its result, within 100 ms of its end."""
    log, go = EffectLog(tmp_path / "log"), tmp_path / "go"
    script = ChildScript(
        PROGRAM,
        tmp_path,
        db=tmp_path / "kernel.db",
        log=log.path,
        go=go,
        threads=CALLERS // processes,
    )
    with ExitStack() as stack:
        children = [stack.enter_context(script.start()) for _ in range(processes)]
        for child in children:
            child.hears("ready")
        go.touch()
        answers = [answer for child in children for answer in child.result()]
    check(answers, log)


class View:
    """A Flask application whose one view runs an execution by key."""

    def __init__(self, db: Path, log: EffectLog) -> None:
        self.kernel = Kernel(db)
        self.log = log
        self.app = flask.Flask(__name__)
        self.app.add_url_rule("/<key>", view_func=self.post, methods=["POST"])
        self.slow = rebuno.wrap_tool("slow", self._slow)

    def _slow(self, _args: dict[str, Any]) -> float:
        self.log.append("slow")
        threading.Event().wait(1.0)
        return time.monotonic()

    def handler(self) -> float:
        ended: float = self.slow()
        return ended

    def post(self, key: str) -> dict[str, float]:
        ended = rebuno.run(self.handler, key=key, kernel=self.kernel)
        return {"ended": ended, "lag": time.monotonic() - ended}


@pytest.fixture
def log(tmp_path: Path) -> EffectLog:
    return EffectLog(tmp_path / "log")


@pytest.fixture
def address(tmp_path: Path, log: EffectLog) -> Iterator[str]:
    """Where a threaded server on the loopback answers."""
    view = View(tmp_path / "kernel.db", log)
    server = make_server("127.0.0.1", 0, view.app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
    view.kernel.close()


def test_c19_posts_to_a_flask_view_share_one_run(address: str, log: EffectLog) -> None:
    """Eight parallel POSTs to a view that runs a key: the body runs once, all get its result, and
    the view has it within 100 ms of the body's end."""
    with ThreadPoolExecutor(CALLERS) as pool:

        def post(_: int) -> dict[str, Any]:
            request = urllib.request.Request(f"{address}/same", method="POST")
            with urllib.request.urlopen(request, timeout=30) as response:
                answer: dict[str, Any] = flask.json.loads(response.read())
                return answer

        check(list(pool.map(post, range(CALLERS))), log)
