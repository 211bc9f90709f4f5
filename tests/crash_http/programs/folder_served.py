"""Serves a handler that works in a folder, which is captured after each step that changes it."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

from serving import serve
from support.children import arguments, say
from support.effect_log import EffectLog

import rebuno_sync as rebuno

GIVEN = arguments()
HOME = Path(GIVEN["home"])
LOG = EffectLog(HOME / "log")
FOLDERS: dict[str, Path] = {}


class Folders:
    """Folders, whose captured states are copies of them."""

    driver_id = "folders"
    coverage_reuse = True

    def create(self, checkpoint_ref: str | None) -> tuple[Path, Any]:
        path = HOME / f"folder-{LOG.append(f'create {checkpoint_ref}')}"
        if checkpoint_ref is None:
            path.mkdir()
        else:
            shutil.copytree(checkpoint_ref, path)
        return path, str(path)

    def open(self, binding: Any) -> Path:
        LOG.append("open")
        return Path(binding)

    def checkpoint(self, handle: Path) -> str:
        copy = HOME / f"copy-{LOG.append('checkpoint')}"
        shutil.copytree(handle, copy)
        return str(copy)


@rebuno.tool(resources=["work"])
def write(name: str) -> str:
    (FOLDERS[rebuno.execution().id] / name).touch()
    return LOG.append(f"write {name}")


@rebuno.tool
def hold(name: str) -> None:
    """Takes its time, unless it was told that it may go."""
    say({"holds": rebuno.execution().id})
    while not (HOME / f"go-{name}").exists():
        threading.Event().wait(0.02)


def handler(name: str) -> list[str]:
    folder = rebuno.resource("work", Folders(), rebuno.CheckpointPolicy(on_completion=False))
    FOLDERS[rebuno.execution().id] = folder  # Where it is is no part of what a step is.
    write(f"{name}-1")
    hold(name)
    write(f"{name}-2")
    return sorted(path.name for path in folder.iterdir())


serve(handler)
