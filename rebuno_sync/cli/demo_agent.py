"""The agent of the demo: an ordinary handler with three tools and a model.

``@counted`` is the demo's own: it writes down each time that a body really runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import rebuno_sync as rebuno

from ..clock import SYSTEM
from . import passages
from .demo_bodies import counted
from .demo_inputs import read_capped
from .demo_questions import ask

__all__ = ["Answer", "handler"]

_INSTRUCTIONS = "Answer the question from the passages alone, in one or two plain sentences."


@dataclass
class Answer:
    """What the handler returns."""

    question: str
    answer: str
    notes: list[str]


@rebuno.tool
@counted
def read_text(path: str) -> str:
    """The text of a file."""
    return read_capped(Path(path))


@rebuno.tool
@counted
def find_passages(text: str, question: str, limit: int = 3) -> list[str]:
    """The paragraphs of a text that fit a question best."""
    return passages.best(passages.paragraphs(text), question, limit)


@rebuno.tool(idempotency="at_most_once")
@counted
def write_report(path: str, text: str) -> int:
    """Write a file that must not exist; the number of characters."""
    with Path(path).open("x", encoding="utf-8") as file:
        return file.write(text)


@counted
def clock() -> str:
    """The time, as a person reads it."""
    return datetime.fromtimestamp(SYSTEM.wall() / 1e6, UTC).isoformat(" ", "milliseconds")


def ask_model(model: str, question: str, passages: list[str]) -> str:
    """Ask a model; what is recorded is the call itself, on its way to the provider."""
    prompt = "\n\n".join([question, *passages])
    return ask(model, [("system", _INSTRUCTIONS), ("user", prompt)])


def handler(paths: list[str], question: str, model: str, report: str) -> Answer:
    """Read every text, ask the model about each, then for one answer; write it down."""
    began = rebuno.step("clock", clock)
    notes = []
    for path in paths:
        text = read_text(path)
        found = find_passages(text, question)
        notes.append(ask_model(model, question, found))
    answer = ask_model(model, question, notes)
    write_report(report, f"{began}\n{question}\n\n{answer}\n")
    return Answer(question, answer, notes)
