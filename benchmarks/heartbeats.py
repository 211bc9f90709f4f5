"""A thousand leases of one process beside four CPU-bound threads, renewed over HTTP.

    python benchmarks/heartbeats.py

A kernel in another process delivers a thousand executions; the agent's process keeps their leases,
which travel together (the extension ``leases``). Printed is how late the latest beat was accepted,
counted from the one before, against the interval.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from ratios import arguments

import rebuno_sync as rebuno
from rebuno_sync.heartbeat import RENEWER, Lease
from rebuno_sync.kernel_client import KernelClient
from rebuno_sync.serving import Server
from rebuno_sync.types import LeaseKey, Renewal
from rebuno_sync.webhook import Webhook
from rebuno_sync.wsgi import WebhookApp

AGENT, SECRET, TOKEN = "beating", "secret", "token"


class TimedClient(KernelClient):
    """Takes down when each beat was accepted."""

    def __init__(self, url: str) -> None:
        super().__init__(url, AGENT, SECRET)
        self.guard = threading.Lock()
        self.accepted: defaultdict[LeaseKey, list[float]] = defaultdict(list)
        self.requests = self.others = 0

    def renew(self, leases: Sequence[LeaseKey]) -> list[Renewal]:
        answers = super().renew(leases)
        now = time.monotonic()
        with self.guard:
            self.requests += 1
            for lease, answer in zip(leases, answers, strict=True):
                if answer is Renewal.ACCEPTED:
                    self.accepted[lease].append(now)
                else:
                    self.others += 1
        return answers

    def beats_of_all(self, leases: int) -> int:
        """How many of each were accepted at least, once there are so many leases."""
        with self.guard:
            counts = [len(times) for times in self.accepted.values()]
        return min(counts) if len(counts) == leases else 0


@contextmanager
def served_kernel(folder: str, lease_seconds: float) -> Iterator[str]:
    command = [sys.executable, "-m", "rebuno_sync", "kernel", "--listen", "127.0.0.1:0"]
    command += ["--db", str(Path(folder) / "kernel.db"), "--lease-timeout", str(lease_seconds)]
    environment = {**os.environ, "REBUNO_BEARER_TOKEN": TOKEN}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as kernel:
        try:
            assert kernel.stdout is not None
            lines = iter(kernel.stdout.readline, "")
            found = next(found for line in lines if (found := re.search(r"listens on (\S+)", line)))
            threading.Thread(target=lambda: list(lines), daemon=True).start()
            yield found.group(1)
        finally:
            kernel.kill()


@contextmanager
def busy_threads(count: int) -> Iterator[None]:
    ended = threading.Event()

    def spin() -> None:
        number = 0
        while not ended.is_set():
            for _ in range(10_000):
                number = (number * 31 + 7) % 1_000_003

    for _ in range(count):
        threading.Thread(target=spin, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def main() -> None:
    options = arguments(__doc__ or "")
    leases, interval, rounds = (100, 2.0, 1) if options.quick else (1_000, 10.0, 4)
    ended = threading.Event()

    def run(lease: Lease, secured: Callable[[], None]) -> None:
        if RENEWER.secure(lease, client):
            secured()
        ended.wait()

    with tempfile.TemporaryDirectory(dir=".") as folder, served_kernel(folder, 3 * interval) as url:
        client = TimedClient(url)
        # One is run; the others wait for it, under leases that are renewed all the same.
        webhook = Webhook(
            (SECRET,),
            client,
            run,
            workers=1,
            renewer=RENEWER,
            learn_extensions=client.learn_extensions,
        )
        server = Server(WebhookApp("/webhook", webhook.handle), "127.0.0.1", 0)
        with rebuno.Client(url, TOKEN) as operator:
            operator.register_agent(AGENT, server.url + "/webhook", SECRET)
            for _ in range(leases):
                operator.create(AGENT)
        with busy_threads(4):
            while not (client.others or client.beats_of_all(leases) > rounds):
                time.sleep(0.1)
        RENEWER.stop()
        ended.set()
        server.close()
    late = max(
        later - earlier - interval
        for times in client.accepted.values()
        for earlier, later in pairwise(times)
    )
    print(
        f"{leases} leases, an interval of {interval:.0f} s, 4 CPU-bound threads, {rounds} rounds:"
        f" the latest beat {late:.2f} s late ({late / interval:.0%} of the interval),"
        f" {client.requests} requests, {client.others} beats not accepted"
    )


if __name__ == "__main__":
    main()
