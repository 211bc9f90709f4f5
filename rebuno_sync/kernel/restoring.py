"""What a fork's resources are restored from (protocol.md 9.5). Functions of a transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .resources import bound, checkpointed
from .store import Connection, resourcing
from .store.resourcing import CheckpointRow, ResourceRow
from .suspension import Entry

__all__ = ["Restored", "restoration", "restore", "selected"]


class Restored(NamedTuple):
    """A resource at the point of a fork, and the checkpoint that was chosen for it."""

    key: str
    registered: dict[str, Any]
    """What its registration said."""
    generation: int
    checkpoint: CheckpointRow | None
    covered: bool
    """Whether the checkpoint is of that very point."""


def selected(
    db: Connection,
    source: int,
    log: Iterable[tuple[int, str, int | None, str | None]],
    at_seq: int,
) -> list[Restored]:
    """The resources that the source had registered by ``at_seq``, as they were then."""
    registered: dict[str, dict[str, Any]] = {}
    generations: dict[str, int] = {}
    for _, kind, _, detail in log:
        if kind == "resource.registered" and detail:
            said = json.loads(detail)
            registered[said["key"]] = said
        elif kind == "resource.initialized" and detail:
            said = json.loads(detail)
            generations[said["key"]] = said.get("generation", 0)
        elif kind == "step.executing" and detail:
            generations |= json.loads(detail).get("generations", {})
    checkpoints = resourcing.checkpoints(db, source)
    return [
        _restored(key, said, generations.get(key, 0), checkpoints, at_seq)
        for key, said in sorted(registered.items())
    ]


def _restored(
    key: str,
    registered: dict[str, Any],
    generation: int,
    checkpoints: Iterable[CheckpointRow],
    at_seq: int,
) -> Restored:
    last = covering = None
    for row in checkpoints:
        if row.key != key or row.covered_seq > at_seq:
            continue
        last = row
        if row.invalidated_seq is None or at_seq < row.invalidated_seq:
            covering = row
    return Restored(key, registered, generation, covering or last, covering is not None)


def restoration(chosen: Iterable[Restored]) -> dict[str, dict[str, Any]]:
    """What is told of it, by key."""
    told: dict[str, dict[str, Any]] = {}
    for it in chosen:
        told[it.key] = {"covered": it.covered}
        if it.checkpoint is not None:
            told[it.key] |= {
                "checkpoint_ref": it.checkpoint.checkpoint_ref,
                "checkpoint_seq": it.checkpoint.covered_seq,
            }
    return told


def restore(
    db: Connection,
    execution: int,
    chosen: Iterable[Restored],
    registered_seqs: Mapping[str, int],
    changes: Mapping[str, int],
    bindings: Mapping[str, str],
    seq: int,
) -> list[Entry]:
    """Give them to the fork; the events that tell of them, the first with the number ``seq``.

    ``registered_seqs``: by key, the fork's event that registers it. ``changes``: by key, how many
    of the copied steps changed it. ``bindings``: what to go on with where no checkpoint is of that
    very point.
    """
    begun: list[Entry] = []
    captures: list[CheckpointRow] = []
    for it in chosen:
        said, checkpoint = it.registered, it.checkpoint
        generation = it.generation if it.covered else it.generation + 1
        configuration = said["configuration"]
        row = ResourceRow(
            key=it.key,
            driver_id=said["driver_id"],
            configuration=None if configuration is None else json.dumps(configuration),
            coverage_reuse=said["coverage_reuse"],
            every_steps=said["every_steps"],
            on_completion=said["on_completion"],
            registered_seq=registered_seqs[it.key],
            generation=generation,
            changes=changes.get(it.key, 0),
            binding=None if it.covered else bindings.get(it.key),
            checkpoint_ref=None if checkpoint is None else checkpoint.checkpoint_ref,
        )
        resourcing.put_resource(db, execution, row)
        told = {"key": it.key, "generation": generation, **restoration([it])[it.key]}
        begun.append(("resource.initialized", None, json.dumps(told)))
        if row.binding is not None:
            begun.append(bound(row.key, row.binding))
        if checkpoint is not None:
            captures.append(checkpoint)
    entries = begun
    for checkpoint in captures:
        number = seq + len(entries)
        of = next(it for it in chosen if it.key == checkpoint.key)
        own = checkpoint._replace(
            covered_seq=number, invalidated_seq=None if of.covered else number
        )
        resourcing.add_checkpoint(db, execution, own)
        entries.append(checkpointed(own))
    return entries
