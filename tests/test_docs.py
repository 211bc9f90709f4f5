"""The blocks of the README and the documentation run as a reader would run them.

A ``python`` block is a script. What says ``background`` after its language (a Python script, or a
line for the shell) is started and serves until the page is over; the blocks after it run when it
listens. A ``sh`` block that says ``run`` is a script for the shell, each line of which ends well.
Other ``sh`` blocks are for people: they install things.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from support.kernel_process import Command, free_port

import rebuno_sync
from rebuno_sync.kernel import Kernel

ROOT = Path(__file__).parent.parent
SOURCE = str(Path(rebuno_sync.__file__).parent.parent)
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(python|sh)( background| run)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")
PORT = re.compile(r"\b(8080|5000)\b")
"""The ports that the pages speak of. A test takes free ones for them."""
LISTENS = re.compile(r"(?:--listen \S+:|port=)(\d+)")


class Block(NamedTuple):
    language: str
    how: str
    """``background``, ``run``, or nothing."""
    text: str

    @property
    def script(self) -> str:
        """What the interpreter reads. ``exec``, so that the shell's process is the command's."""
        if self.language == "python":
            return self.text
        return f"exec {self.text}" if self.how == "background" else f"set -e\n{self.text}"


def blocks_of(page: Path) -> list[Block]:
    """Those that are run."""
    found = [
        Block(language, how.strip(), text)
        for language, how, text in BLOCK.findall(page.read_text())
    ]
    return [block for block in found if block.language == "python" or block.how]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the project's command, whether or not it is installed."""
    folder = tmp_path_factory.mktemp("bin")
    command = folder / "rebuno-sync"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rebuno_sync "$@"\n')
    command.chmod(0o755)
    return folder


@pytest.mark.parametrize("page", [p for p in PAGES if blocks_of(p)], ids=name_of)
def test_the_blocks_of_a_page_run_one_after_another(
    page: Path, tmp_path: Path, commands: Path
) -> None:
    """They share a folder, and so the recorded executions."""
    given = {
        "PYTHONWARNINGS": "error",
        "PYTHONPATH": SOURCE,
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
    }
    environment = {**os.environ, **given}
    environment.pop("REBUNO_DB", None)
    ports: dict[str, int] = {}
    with ExitStack() as served:
        for number, block in enumerate(blocks_of(page), 1):
            where = f"block {number} of {name_of(page)}"
            text = PORT.sub(
                lambda found: str(ports.setdefault(found.group(), free_port())), block.script
            )
            script = tmp_path / f"block_{number}.{'py' if block.language == 'python' else 'sh'}"
            script.write_text(text)
            interpreter = sys.executable if block.language == "python" else "sh"
            command = [interpreter, str(script)]
            if block.how == "background":
                listens = LISTENS.search(text)
                assert listens, f"{where} runs in the background and names no port"
                process = served.enter_context(Command(command, tmp_path, script.stem, **given))
                process.listens(int(listens.group(1)))
                continue
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 0, f"{where}:\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """A relative link names a file of the repository."""
    for target in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{name_of(page)} links to {target}"


def test_every_public_name_is_documented() -> None:
    """Each exported name stands in the README or the documentation, or is an error of the tree."""
    text = "\n".join(page.read_text() for page in PAGES)
    missing = [
        name
        for name in rebuno_sync.__all__
        if not re.search(rf"\b{name}\b", text) and name not in rebuno_sync.errors.__all__
    ]
    assert not missing


PACKAGE = Path(rebuno_sync.__file__).parent
HOUSE = [
    ROOT / "docs" / "explanation" / name for name in ("design.md", "service.md", "model-calls.md")
]


def modules() -> list[str]:
    """All but those of the command line, which is one idea to the pages."""
    paths = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")]
    return sorted(
        str(path.with_suffix(""))
        for path in paths
        if not path.name.startswith("__") and path.parts[0] != "cli"
    )


def test_every_module_has_a_place_in_the_house() -> None:
    """The pages that explain the design name each of them."""
    text = "\n".join(page.read_text() for page in HOUSE)
    named = {Path(name).stem for name in re.findall(r"`([\w/]+(?:\.py)?)`", text)}
    missing = [name for name in modules() if Path(name).name not in named]
    assert missing == [], "give them a line in docs/explanation/design.md or service.md"


def test_the_house_has_no_module_that_is_gone() -> None:
    """Whatever the pages call a file of the package is one."""
    files = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*")}
    ends = files | {file.rpartition("/")[2] for file in files}
    for page in HOUSE:
        for name in re.findall(r"`([\w/]+\.py)`", page.read_text()):
            known = name in ends or (ROOT / name).exists()
            assert known, f"{name_of(page)} names {name}"


REFERENCE = ROOT / "docs" / "reference" / "api.md"


def section(title: str) -> str:
    """What the reference says under a heading."""
    text = REFERENCE.read_text()
    assert f"\n## {title}\n" in text
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    ("title", "cls"),
    [
        ("Agent", rebuno_sync.Agent),
        ("Client", rebuno_sync.Client),
        ("The embedded kernel", Kernel),
    ],
)
def test_the_reference_has_every_method_and_argument(title: str, cls: type) -> None:
    """Of the three classes that people construct."""
    names = {name for name in dir(cls) if not name.startswith("_")}
    arguments = set(inspect.signature(cls).parameters) - {"clock"}
    text = section(title)
    missing = {name for name in names | arguments if not re.search(rf"\b{name}\b", text)}
    assert not missing
