"""A main thread that is interrupted again and again, and runs the same execution until it
completes.

Other threads of the process run executions of their own meanwhile. The main thread uses no pool: a
future of the standard library may itself hang when an interrupt strikes inside it.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

from support.children import arguments, say
from support.effect_log import EffectLog

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

GIVEN = arguments()
LOG = EffectLog(GIVEN["log"])
STORM_OVER = threading.Event()
INTERRUPTS: list[int] = []


@rebuno.tool
def effect(label: str) -> str:
    LOG.append(label)
    return label


@rebuno.tool
def outer(label: str) -> str:
    return effect(f"{label}.inner") + LOG.append(label)[:0]


def stormy(effects: int) -> int:
    for number in range(effects):
        effect(f"effect-{number}")
        outer(f"outer-{number}")
        rebuno.step("local", LOG.append, {"label": f"local-{number}"})
    return effects


def calm(number: int) -> int:
    effect(f"calm-{number}")
    return number


def run_calm_ones(kernel: Kernel, name: str, done: list[int]) -> None:
    while not STORM_OVER.is_set():
        number = len(done)
        rebuno.run(calm, {"number": number}, key=f"{name}-{number}", agent=name, kernel=kernel)
        done.append(number)


def strike(_: int, frame: FrameType | None) -> None:
    """An interrupt strikes between any two instructions of ``run`` and what it calls, and not in
    the few lines that run it again."""
    while frame is not None:
        if frame.f_code is rebuno.run.__code__:
            raise KeyboardInterrupt
        frame = frame.f_back


def run_until_it_completes(kernel: Kernel) -> None:
    while True:
        try:
            rebuno.run(stormy, {"effects": GIVEN["effects"]}, key="stormy", kernel=kernel)
            return
        except KeyboardInterrupt:
            INTERRUPTS.append(1)


def main() -> None:
    kernel = Kernel(GIVEN["db"], max_attempts=1000)
    calm_ones: dict[str, list[int]] = {"calm-a": [], "calm-b": []}
    threads = [
        threading.Thread(target=run_calm_ones, args=(kernel, name, done))
        for name, done in calm_ones.items()
    ]
    for thread in threads:
        thread.start()
    signal.signal(signal.SIGINT, strike)
    say("storm me")
    run_until_it_completes(kernel)
    STORM_OVER.set()
    for thread in threads:
        thread.join()
    kernel.close()
    say({"interrupts": len(INTERRUPTS), "calm": [len(done) for done in calm_ones.values()]})


if __name__ == "__main__":
    main()
