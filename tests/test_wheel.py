"""The built wheel, in an environment that has nothing but what it asks for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parent.parent
NEEDED = ["setup.py", "setup.cfg", "README.md", "LICENSE"]
FOLDERS = ["rebuno_sync", "bin"]

SCRIPT = """
import json, sys
import rebuno_sync as rebuno

calls = []

@rebuno.tool
def double(number: int) -> int:
    calls.append(number)
    return 2 * number

def handler(number: int) -> int:
    return double(number) + 1

outputs = [rebuno.run(handler, {"number": 20}, key="once") for _ in range(2)]
json.dump({"outputs": outputs, "calls": calls}, sys.stdout)
"""

IMPORT_ALL = """
import importlib, pkgutil
import rebuno_sync

for module in pkgutil.walk_packages(rebuno_sync.__path__, "rebuno_sync."):
    importlib.import_module(module.name)
    print(module.name)
"""


def call(*command: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env, cwd=cwd)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A copy, since building leaves files beside the sources.
    source = tmp_path_factory.mktemp("source")
    for name in NEEDED:
        shutil.copy(SOURCE / name, source)
    without_caches = shutil.ignore_patterns("__pycache__")
    for name in FOLDERS:
        shutil.copytree(SOURCE / name, source / name, ignore=without_caches)
    call(sys.executable, "-m", "build", "--wheel", source)
    [built] = (source / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("clean")
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", wheel)
    return python


def outside(cwd: Path) -> dict[str, str]:
    """An environment that leads to no other copy of the package, and to a file of its own."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "REBUNO_DB": str(cwd / "kernel.db")}


def test_the_wheel_has_every_file_that_is_no_module(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    assert {"rebuno_sync/py.typed", "rebuno_sync/kernel/schema.sql"} <= inside
    texts = (SOURCE / "rebuno_sync" / "cli" / "demo_texts").glob("*.md")
    assert {f"rebuno_sync/cli/demo_texts/{text.name}" for text in texts} <= inside


def test_the_wheel_has_the_package_its_command_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = [name.partition("/") for name in archive.namelist()]
    beside = {rest for top, _, rest in inside if top.endswith(".data")}
    assert beside == {"scripts/rebuno-sync"}
    tops = {top for top, _, _ in inside if not top.endswith((".dist-info", ".data"))}
    assert tops == {"rebuno_sync"}


def test_every_module_imports_without_an_extra(clean_python: Path, tmp_path: Path) -> None:
    printed = call(
        clean_python, "-W", "error", "-c", IMPORT_ALL, cwd=tmp_path, env=outside(tmp_path)
    )
    imported = set(printed.split())
    modules = (SOURCE / "rebuno_sync").rglob("*.py")
    names = {".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in modules}
    names = {name.removesuffix(".__init__") for name in names} - {"rebuno_sync"}
    assert imported == names


def test_a_durable_run_works_without_an_extra(clean_python: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    env = outside(tmp_path)
    first = json.loads(call(clean_python, "-W", "error", script, cwd=tmp_path, env=env))
    assert first == {"outputs": [41, 41], "calls": [20]}
    again = json.loads(call(clean_python, "-W", "error", script, cwd=tmp_path, env=env))
    assert again == {"outputs": [41, 41], "calls": []}


def test_the_command_is_installed(clean_python: Path, tmp_path: Path) -> None:
    command = clean_python.parent / "rebuno-sync"
    assert "demo" in call(command, "--help", cwd=tmp_path, env=outside(tmp_path))
