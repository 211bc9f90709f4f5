"""What the executions of a soak do, and what befalls each of them: drawn from a seed."""

from __future__ import annotations

import random
from typing import NamedTuple

__all__ = ["FATES", "SHAPES", "Course", "course"]

SHAPES = ("plain", "parallel", "retried", "timed", "late", "nap", "local")
FATES = {
    "none": 830,
    "cancelled": 120,
    "lost in a body": 12,
    "lost in a body that runs once": 8,
    "lost between bodies": 10,
    "forked": 10,
    "forked and died": 10,
}
"""How many in a thousand."""


class Course(NamedTuple):
    """``cut``: after how many effects it is cancelled. ``waits``: whether it waits to be."""

    shape: str
    fate: str
    cut: int
    waits: bool


def course(seed: int, number: int) -> Course:
    """That of one execution, the same in every process."""
    chance = random.Random(f"{seed}/{number}")
    [fate] = chance.choices(list(FATES), list(FATES.values()))
    return Course(chance.choice(SHAPES), fate, chance.randint(0, 2), chance.random() < 0.5)
