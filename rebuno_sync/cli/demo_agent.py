"""The agent of the demo: an ordinary handler with three tools and a model.

``@counted`` is the demo's own: it writes down each time that a body really runs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import requests

import rebuno_sync as rebuno

from ..clock import SYSTEM
from . import passages
from .demo_bodies import counted
from .demo_inputs import read_capped

__all__ = ["Answer", "answer_from", "handler"]

_INSTRUCTIONS = "Answer the question from the passages alone, in one or two plain sentences."
_TIMEOUT_SECONDS = 60.0


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


@counted
def ask_model(model: str, question: str, passages: list[str]) -> str:
    """Ask the provider that ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY`` name."""
    prompt = "\n\n".join([question, *passages])
    response = requests.post(
        os.environ["OPENAI_BASE_URL"].rstrip("/") + "/chat/completions",
        json={
            "model": model,
            "messages": [
                {"role": "system", "content": _INSTRUCTIONS},
                {"role": "user", "content": prompt},
            ],
        },
        auth=_bearer,
        timeout=_TIMEOUT_SECONDS,
    )
    if not response.ok:
        raise requests.HTTPError(f"HTTP {response.status_code}: {response.text[:200]}")
    return answer_from(response)


def answer_from(response: requests.Response) -> str:
    """The text of a chat completion; ``ValueError`` when the response is none."""
    try:
        content = response.json()["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError):
        content = None
    if not isinstance(content, str):
        raise ValueError(f"{response.url} answered with no chat completion: {response.text[:200]}")
    return content.strip()


def _bearer(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """As ``auth=``, since a header would lose against a line for the host in ``~/.netrc``."""
    request.headers["Authorization"] = f"Bearer {os.environ['OPENAI_API_KEY']}"
    return request


def handler(paths: list[str], question: str, model: str, report: str) -> Answer:
    """Read every text, ask the model about each, then for one answer; write it down."""
    began = rebuno.step("clock", clock)
    notes = []
    for path in paths:
        text = read_text(path)
        found = find_passages(text, question)
        asked = {"model": model, "question": question, "passages": found}
        notes.append(rebuno.step("ask_model", ask_model, asked))
    asked = {"model": model, "question": question, "passages": notes}
    answer = rebuno.step("ask_model", ask_model, asked)
    write_report(report, f"{began}\n{question}\n\n{answer}\n")
    return Answer(question, answer, notes)
