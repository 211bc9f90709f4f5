"""Every cell of the matrix: its answer, its events, and what must hold whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.folded import Story, check_file_of, check_grown, check_story, story
from support.memory import quick_folder

from rebuno_sync.errors import NotFoundError

from .cells import DIRECT, Column, Row, Rule, Scene
from .roads import World
from .tables import TABLES

CELLS = [
    pytest.param(
        road,
        row,
        column,
        id=f"{road}-{name}-{row.name}-{column.name}".replace(" ", "_"),
    )
    for name, table in TABLES.items()
    for road, row, column in table.cells()
]


class Stage:
    """One world for each row and road; a scene that no cell has changed serves the next."""

    def __init__(self) -> None:
        self._worlds: dict[tuple[str, Row], World] = {}
        self._scenes: dict[tuple[str, Row, float], Scene] = {}
        self._held = ExitStack()
        self._folder = Path(self._held.enter_context(quick_folder()))

    def world(self, road: str, row: Row) -> World:
        world = self._worlds.get((road, row))
        if world is None:
            folder = self._folder / str(len(self._worlds))
            folder.mkdir()
            world = self._worlds[road, row] = World(folder, road)
            self._held.callback(world.close)
        return world

    def scene(self, road: str, row: Row) -> Scene:
        """One that is new."""
        world = self.world(road, row)
        scene = row.reach(world)
        if not row.noticed:
            _check_facets(world, row, scene)
        return scene

    def standing_scene(self, road: str, row: Row) -> Scene:
        """One on which others may have been refused before; no time has passed since."""
        place = road, row, self.world(road, row).clock.monotonic()
        if place not in self._scenes:
            self._scenes[place] = self.scene(road, row)
        return self._scenes[place]

    def close(self) -> None:
        self._held.close()


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    there = Stage()
    yield there
    there.close()


_WHOLE = (
    "executions",
    "tombstones",
    "steps",
    "resources",
    "checkpoints",
    "events",
    "approvals",
    "wakes",
    "agents",
    "api_keys",
    "rate_buckets",
    "notices",
    "requests",
    "occurrences",
)
# A refusal may renew a lease, and tell who holds it: those are none of the columns here.
_DISPATCHES = "SELECT id, status, attempt, strikes, due, owner FROM dispatches"


def _file(world: World) -> list[list[Any]]:
    queries = (*(f"SELECT * FROM {name}" for name in _WHOLE), _DISPATCHES)
    read = world.kernel.core.store().read
    return [read(lambda db, sql=sql: db.execute(sql).fetchall()) for sql in queries]


def _logs(world: World) -> dict[str, tuple[Any, ...]]:
    sql = "SELECT id, status, (SELECT max(seq) FROM events WHERE execution = n) FROM executions"
    found = world.kernel.core.store().read(lambda db: db.execute(sql).fetchall())
    return {execution_id: tuple(rest) for execution_id, *rest in found}


def _story(world: World, scene: Scene) -> Story | None:
    if not scene.execution_id:
        return None
    try:
        return story(world.kernel, scene.execution_id)
    except NotFoundError:
        return None


_WORTHS = ("held", "newest", "outdated")


def _compares_leases(row: Row, scene: Scene) -> bool:
    """Not where it depends on who asks: such a row has one road."""
    return bool(scene.lease.dispatch_id) and DIRECT in row.roads


def _check_facets(world: World, row: Row, scene: Scene) -> None:
    """The row is what it says it is, so that its rules are the right ones."""
    facets = row.facets.split()
    if _compares_leases(row, scene):
        assert world.worth(scene.lease) in facets
    told = _story(world, scene)
    if told is not None and "unknown" not in facets:
        assert told.execution.status in facets
        step = told.steps.get(scene.step_id)
        actual = {f"step-{step.status if step else 'none'}"}
        actual |= {f"approval-{told.approvals[it].status}" for it in (scene.approval_id,) if it}
        actual |= {f"dispatch-{world.dispatch_status(scene.lease)}"}
        kinds = ("step-", "approval-", "dispatch-")
        assert {it for it in facets if it.startswith(kinds)} <= actual


@pytest.mark.parametrize(("road", "row", "column"), CELLS)
def test_a_cell(stage: Stage, road: str, row: Row, column: Column) -> None:
    """The write gets the answer of its rule, appends the events of its rule, and breaks nothing."""
    expected = column.expected(frozenset(row.facets.split()), road)
    if expected.refuses and not row.noticed:
        _ask_in_vain(stage, road, row, column, expected)
        return
    world = stage.world(road, row)
    scene = stage.scene(road, row)
    before = None if row.noticed else _story(world, scene)
    logs = _logs(world)

    assert world.ask(column, scene) == expected.answer, expected.section

    after = _story(world, scene)
    if after is not None and "tombstone" not in row.facets:
        check_story(after)
        wanted = expected.events(before) if callable(expected.events) else expected.events
        _, there = logs[scene.execution_id]
        assert after.kinds[there:] == f"{row.noticed} {wanted}".split(), expected.section
        if before is not None:
            check_grown(before, after)
        if _compares_leases(row, scene):
            worth = expected.lease or next(it for it in _WORTHS if it in row.facets.split())
            assert world.worth(scene.lease) == worth, "the lease is worth something else now"
    _check_others(world, scene, logs)
    check_file_of(world.kernel)


def _ask_in_vain(stage: Stage, road: str, row: Row, column: Column, expected: Rule) -> None:
    """A refusal changes nothing at all."""
    # In process, a refused submit also forgets what was kept of the attempt in memory.
    forgets = column.port == "agent.submit" and road == DIRECT
    world = stage.world(road, row)
    scene = stage.scene(road, row) if forgets else stage.standing_scene(road, row)
    before = _file(world)
    assert world.ask(column, scene) == expected.answer, expected.section
    assert _file(world) == before, f"a refusal has changed something ({expected.section})"


def _check_others(world: World, scene: Scene, logs: dict[str, tuple[Any, ...]]) -> None:
    """What the write is not about is as it was."""
    mine = {scene.execution_id, *scene.bystanders}
    now = _logs(world)
    assert {it: now.get(it) for it in logs if it not in mine} == {
        it: logs[it] for it in logs if it not in mine
    }
