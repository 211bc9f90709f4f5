"""A served kernel beside the processes of a test, and what its programs are given."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.services import TOKEN, Service

import rebuno_sync as rebuno

PROGRAMS = Path(__file__).parent / "programs"
ROOTS = [Path(rebuno.__file__).parent.parent, PROGRAMS]


@rebuno.tool
def increment(number: int) -> int:
    return number + 1


def handler(number: int) -> int:
    return increment(number)


Environment = Callable[..., dict[str, str]]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    """The environment of a program, with what else it is given."""
    with Service(tmp_path) as service:
        service.agent(handler)

        def of_program(**more: object) -> dict[str, str]:
            given = {"db": str(tmp_path / "kernel.db"), "url": service.url, "token": TOKEN, **more}
            roots = os.pathsep.join(map(str, ROOTS))
            return {"GIVEN": json.dumps(given), "PYTHONPATH": roots}

        yield of_program
