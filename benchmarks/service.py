"""Steps per second between two processes: our agent on the embedded kernel, over HTTP.

    python benchmarks/service.py

Everything is counted, from the creation of the first execution to the end of the last. The floor
is two bare ``http.client`` POSTs for each step, in as many threads, to a stub kernel.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from children import script
from http_step import floor, in_threads
from ratios import Rival, arguments, compare, timed

import rebuno_sync as rebuno

SECRET = "secret"
WORKERS = 64
RUN = "from rebuno_sync.cli.main import main; main()"


@contextmanager
def kernel(folder: Path) -> Iterator[str]:
    """A kernel process; its URL."""
    command = [sys.executable, "-c", RUN, "kernel", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--db", folder / "kernel.db", "--token", SECRET],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        try:
            assert child.stdout is not None
            yield child.stdout.readline().split()[-1]
        finally:
            child.terminate()


def many(client: rebuno.Client, agent_id: str, executions: int, steps: int) -> None:
    ids = [client.create(agent_id, {"steps": steps}).id for _ in range(executions)]
    for one in ids:
        client.wait(one, timeout=600)


def main() -> None:
    options = arguments(__doc__ or "")
    with (
        tempfile.TemporaryDirectory(dir=".") as folder,
        kernel(Path(folder)) as url,
        script("serving_agents.py", url, SECRET, str(WORKERS)) as agents,
        script("stub_kernel.py") as stub,
        rebuno.Client(url, SECRET) as client,
    ):
        for agent_id in ("plain", "batch"):
            client.register_agent(agent_id, f"http://127.0.0.1:{agents}/{agent_id}", SECRET)
        for executions, steps in ((16, 50), (64, 15)):
            steps = 2 if options.quick else steps
            units = executions * steps

            def measured(work: Callable[[], None], units: int = units) -> Callable[[], float]:
                return lambda: timed(work, units)

            compare(
                f"one step between two processes, {executions} executions of {steps} steps",
                Rival(
                    "floor: two bare http.client POSTs",
                    measured(lambda n=executions, s=steps: in_threads(n, lambda: floor(stub, s))),
                ),
                *(
                    Rival(
                        name,
                        measured(lambda a=agent_id, n=executions, s=steps: many(client, a, n, s)),
                    )
                    for name, agent_id in (("without batch", "plain"), ("with batch", "batch"))
                ),
                turns=1 if options.quick else 5,
            )


if __name__ == "__main__":
    main()
