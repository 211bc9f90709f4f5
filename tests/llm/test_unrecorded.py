"""In development: a warning for HTTP that a handler makes outside any effect."""

from __future__ import annotations

import asyncio
import http.client
import importlib
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from support.provider_server import Provider

import rebuno_sync as rebuno
from rebuno_sync import llm
from rebuno_sync.kernel import Kernel

from .clients import POSTS


def _httpx(library: str) -> Callable[[str], Any]:
    httpx: Any = importlib.import_module(library)
    return lambda url: httpx.get(url)


def _async_httpx(library: str) -> Callable[[str], Any]:
    httpx: Any = importlib.import_module(library)

    async def get(url: str) -> None:
        async with httpx.AsyncClient() as client:
            await client.get(url)

    return lambda url: asyncio.run(get(url))


def _urllib(url: str) -> None:
    with urllib.request.urlopen(url) as answer:
        answer.read()


GETS: dict[str, Callable[[str], Any]] = {
    "requests": requests.get,
    "urllib": _urllib,
    "httpx2": _httpx("httpx2"),
    "httpx": _httpx("httpx"),
    "httpx2, asyncio": _async_httpx("httpx2"),
    "httpx, asyncio": _async_httpx("httpx"),
}


@pytest.mark.parametrize("name", GETS)
def test_c27_http_in_a_handler_is_warned_of_with_file_and_line(
    kernel: Kernel, provider: Provider, name: str
) -> None:
    """It will be made again when the execution resumes."""
    lines: list[int] = []

    def handler() -> None:
        lines.append(sys._getframe().f_lineno + 1)
        GETS[name](provider.url)

    with llm.warn_unrecorded(), pytest.warns(llm.UnrecordedRequest, match="made again") as found:
        rebuno.run(handler, kernel=kernel)
    # A lambda of this file may stand between.
    assert {Path(warning.filename).name for warning in found} == {Path(__file__).name}
    if name == "requests":
        assert [warning.lineno for warning in found] == lines


def test_c27_http_in_an_effect_or_outside_a_handler_is_none_of_its_business(
    kernel: Kernel, provider: Provider
) -> None:
    """Tools, steps and recorded model calls are there for it."""

    @rebuno.tool
    def fetch() -> int:
        return requests.get(provider.url).status_code

    def handler() -> None:
        fetch()
        rebuno.step("fetch", lambda: GETS["httpx2"](provider.url).status_code)
        for post in POSTS.values():
            post(provider.url)

    with llm.warn_unrecorded():
        requests.get(provider.url)
        rebuno.run(handler, kernel=kernel)


def test_c27_it_undoes_itself() -> None:
    """``http.client`` is as it was."""
    before = http.client.HTTPConnection.putrequest
    watch = llm.warn_unrecorded()
    assert http.client.HTTPConnection.putrequest is not before
    watch.stop()
    assert http.client.HTTPConnection.putrequest is before


PROGRAM = """
import sys, requests, rebuno_sync

def handler(url: str) -> None:
    requests.get(url)

rebuno_sync.run(handler, {"url": sys.argv[1]})
"""


@pytest.mark.parametrize("switch", ["1", ""])
def test_c27_the_environment_switches_it_on(
    tmp_path: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    """``REBUNO_DEV=1``, for every handler of the process."""
    monkeypatch.setenv("REBUNO_DEV", switch)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), provider.url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    told = f"{program}:5: UnrecordedRequest"
    assert (told in done.stderr) == bool(switch), done.stderr
