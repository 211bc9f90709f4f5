"""Kernel and agent in one process: no HTTP, no secret, one file (REBUNO_DB or .rebuno/kernel.db).

python examples/in_process.py
"""

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel


@rebuno.tool
def square(number: int) -> int:
    return number * number


def handler(numbers: list[int]) -> int:
    return sum(square(number) for number in numbers)


if __name__ == "__main__":
    with Kernel() as kernel, rebuno.Agent("squares", kernel=kernel) as agent:
        agent.bind(handler)  # Its executions are taken from now on.
        executions = [kernel.create("squares", {"numbers": list(range(n))}) for n in range(5)]
        for execution in executions:
            print(kernel.wait(execution.id, timeout=60).output)
