"""A chain of ``safe_to_retry`` effects over a line with 20 ms of delay: the ratios are round trips
for each step.

    python benchmarks/delay.py

The floor is one bare ``http.client`` POST over the same line. The kernel is a stub, so that all
that counts is what waits for what.
"""

from __future__ import annotations

import http.client

from children import script
from http_step import HEADERS, SUBMIT, agent_of, ours
from ratios import Rival, arguments, compare, timed

SECONDS_EACH_WAY = 0.01


def round_trips(port: int, count: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.connect()
    for _ in range(count):
        connection.request("POST", "/v0/executions/x/steps", SUBMIT, HEADERS)
        connection.getresponse().read()
    connection.close()


def main() -> None:
    options = arguments(__doc__ or "")
    steps = 3 if options.quick else 50
    with (
        script("stub_kernel.py") as kernel,
        script("slow_line.py", str(kernel), str(SECONDS_EACH_WAY)) as line,
    ):
        rivals = [
            Rival("floor: one round trip", lambda: timed(lambda: round_trips(line, steps), steps))
        ]
        for name, extensions in (
            ("a kernel without extensions", ""),
            ("with request ids", "request-id"),
            ("with request ids and batch", "request-id, batch"),
        ):
            agent = agent_of(line, steps, extensions)
            rivals.append(Rival(name, lambda a=agent: timed(lambda: ours(a), steps)))
        compare(
            f"round trips for each of {steps} steps, 20 ms of delay",
            *rivals,
            turns=1 if options.quick else 5,
        )


if __name__ == "__main__":
    main()
