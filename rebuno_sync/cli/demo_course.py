"""The course of the demo: one process that is killed, one that resumes, one undisturbed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..kernel import Kernel
from . import demo_log
from .demo_bodies import read_ledger
from .demo_child import AGENT, Settings
from .demo_listener import Listener
from .demo_model import Model, choose
from .demo_process import DemoFailed, Process
from .demo_promises import Attempt, Evidence, Promise, judge
from .demo_questions import NO_ANSWER
from .demo_screen import Screen
from .provider import Provider

__all__ = ["Task", "demonstrate"]

_KEY = "demo"
_HELD_SECONDS = 30.0
_SLOWEST_KILL_SECONDS = 0.25
"""A provider of somebody else's is not asked sooner, so that the kill comes in time."""


@dataclass(frozen=True)
class Task:
    """What to show. ``pace``: seconds for each effect; ``folder``: empty, for all files."""

    paths: Sequence[Path]
    question: str
    pace: float
    folder: Path

    @property
    def database(self) -> Path:
        return self.folder / "kernel.db"

    @property
    def ledger(self) -> Path:
        return self.folder / "bodies.jsonl"

    @property
    def fatal_question(self) -> int:
        """The number of the model question that the first process does not survive."""
        return (len(self.paths) + 1) // 2

    def reports(self) -> Iterator[str]:
        """What was written, without the line that has the time."""
        for path in sorted(self.folder.glob("report*.md")):
            yield path.read_text("utf-8").partition("\n")[2]


def demonstrate(screen: Screen, task: Task, remarks: Sequence[str]) -> list[Promise]:
    """Show everything and judge it. Raises ``DemoFailed`` when it does not come to its end."""
    with nullcontext() if os.environ.get("OPENAI_API_KEY") else Provider() as provider:
        course = _Course(screen, task, provider)
        course.introduce(remarks)
        return judge(course.run())


class _Course:
    def __init__(self, screen: Screen, task: Task, provider: Provider | None) -> None:
        self._screen = screen
        self._task = task
        self._provider = provider
        self._model: Model = choose(os.environ, provider)
        self._cut_down: set[str] = set()
        if provider is not None:
            provider.hold(task.fatal_question)

    def introduce(self, remarks: Sequence[str]) -> None:
        number = len(self._task.paths)
        texts = "a text" if number == 1 else f"{number} texts"
        self._screen.line("rebuno-sync demo", "title")
        self._screen.paragraph(
            f"An agent reads {texts}, calls tools, asks a model ({self._model.name} at"
            f" {self._model.where}) and writes a report. Half way its process is killed; a second"
            " one resumes.",
            indent=0,
        )
        for remark in remarks:
            self._screen.paragraph(remark, "dim")

    def run(self) -> Evidence:
        killed = self._attempt("first", "First process")
        resumed = self._attempt("second", "Second process, same key")
        undisturbed = None
        if self._provider is not None:
            undisturbed = self._attempt("undisturbed")
        self._show_answer(resumed.output)
        events = self._show_events()
        requests = None if self._provider is None else self._provider.requests
        reports = tuple(self._task.reports())
        return Evidence(killed, resumed, undisturbed, self._model.name, requests, events, reports)

    def _attempt(self, name: str, title: str = "") -> Attempt:
        fatal = name == "first"
        listener = Listener(self._screen if title else None, self._model.name, self._cut_down)
        with Process(self._settings(name), self._model.environment) as process:
            if title:
                self._screen.heading(f"{title} (pid {process.pid})")
            for message in process.messages():
                listener.hear(message)
                in_question = message["is"] == "body" and message["target"] == self._model.name
                if fatal and in_question and listener.questions == self._task.fatal_question:
                    self._await_question()
                    process.kill()
            code = process.wait()
        if listener.failure or (code and not fatal):
            listener.end("failed")
            raise DemoFailed(self._reason(listener.failure or f"a process ended with code {code}"))
        listener.end("cut down")
        if fatal:
            self._cut_down = listener.cut_down
            self._screen.line(f"  SIGKILL to process {process.pid}", "cut")
        bodies = tuple(body for body in read_ledger(self._task.ledger) if body.attempt == name)
        effects = tuple(listener.effects)
        return Attempt(code, effects, bodies, listener.output, listener.in_flight)

    def _settings(self, name: str) -> Settings:
        task, undisturbed = self._task, name == "undisturbed"
        pace = 0.0 if undisturbed else task.pace
        if self._provider is None:
            pace = max(pace, _SLOWEST_KILL_SECONDS)
        return Settings(
            attempt=name,
            database=str(task.database),
            ledger=str(task.ledger),
            key=name if undisturbed else _KEY,
            pace=pace,
            input={
                "paths": [str(path) for path in task.paths],
                "question": task.question,
                "model": self._model.name,
                "report": str(task.folder / f"report{'-undisturbed' * undisturbed}.md"),
            },
        )

    def _await_question(self) -> None:
        """The provider keeps the question that is not to be answered, so the kill is no race."""
        if self._provider is not None and not self._provider.await_held(_HELD_SECONDS):
            raise DemoFailed("the question that the kill waits for did not reach the provider")

    def _reason(self, failure: str) -> str:
        if self._provider is not None or NO_ANSWER not in failure:
            return failure
        return (
            f"{failure}\nCheck OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL; without"
            " OPENAI_API_KEY the demo asks a model of its own."
        )

    def _show_answer(self, output: dict[str, Any]) -> None:
        self._screen.heading("Answer")
        self._screen.paragraph(output["question"], "dim")
        self._screen.paragraph(output["answer"])

    def _show_events(self) -> tuple[tuple[str, str], ...]:
        with Kernel(self._task.database) as kernel:
            execution = kernel.find(AGENT, _KEY)
            if execution is None:
                raise DemoFailed(f"{self._task.database} does not have the execution")
            events = demo_log.read(kernel, execution.id)
        self._screen.heading("Event log")
        self._screen.paragraph(f"execution {execution.id}, {execution.status}", "dim")
        for line in demo_log.lines(events):
            self._screen.line(line)
        return tuple((event.type, event.payload.get("step_id", "")) for event in events)
