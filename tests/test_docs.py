"""Every Python block of the README and the documentation runs as a reader would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")


def blocks_of(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text())


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if blocks_of(p)], ids=name_of)
def test_the_blocks_of_a_page_run_one_after_another(page: Path, tmp_path: Path) -> None:
    """Each block is a script; those of a page share a folder, and so the recorded executions."""
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    environment.pop("REBUNO_DB", None)
    for number, block in enumerate(blocks_of(page), 1):
        script = tmp_path / f"block_{number}.py"
        script.write_text(block)
        done = subprocess.run(
            [sys.executable, script.name],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"block {number} of {name_of(page)}:\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """A relative link names a file of the repository."""
    for target in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{name_of(page)} links to {target}"


def test_every_public_name_is_documented() -> None:
    """Each exported name stands in the README or the documentation, or is an error of the tree."""
    import rebuno_sync

    text = "\n".join(page.read_text() for page in PAGES)
    missing = [
        name
        for name in rebuno_sync.__all__
        if not re.search(rf"\b{name}\b", text) and name not in rebuno_sync.errors.__all__
    ]
    assert not missing
