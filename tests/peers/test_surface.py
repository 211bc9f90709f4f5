"""The table of features: what each release has, and what is shown of it."""

from __future__ import annotations

import json
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from .environments import PROGRAMS, RELEASES, Release, variables
from .features import FEATURES, SHOWN

pytestmark = pytest.mark.slow


@pytest.fixture
def surface(python: Path) -> list[str]:
    """What the release has: names, methods, arguments."""
    done = subprocess.run(
        [python, PROGRAMS / "async_surface.py"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=variables(),
    )
    return [str(name) for name in json.loads(done.stdout)]


def test_what_a_release_has_belongs_to_what_it_knows(release: Release, surface: list[str]) -> None:
    """Each name, method and argument to exactly one feature, which the table says is known."""
    known = {title: it for title, it in FEATURES.items() if it.known_to(release)}
    owners = {name: [title for title, it in known.items() if it.has(name)] for name in surface}
    assert {name: titles for name, titles in owners.items() if len(titles) != 1} == {}


def test_what_a_release_knows_it_has(release: Release, surface: list[str]) -> None:
    """Each pattern of a feature that it knows matches something, in one release at least; one that
    it does not know has no name there."""
    for title, feature in FEATURES.items():
        found = [name for name in surface if feature.has(name)]
        assert bool(found) == (feature.known_to(release) and bool(feature.names)), title


def test_what_a_release_knows_is_shown() -> None:
    """Some test runs it against our kernel; what none knows has none."""
    for module in Path(__file__).parent.glob("test_*.py"):
        import_module(f"{__package__}.{module.stem}")
    known = {title for title, feature in FEATURES.items() if any(map(feature.known_to, RELEASES))}
    assert set(SHOWN) == known
