"""Hears what a process of the demo tells: shows it, and keeps it for the verdict."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .demo_promises import Effect
from .demo_screen import Screen

__all__ = ["Listener"]


class Listener:
    """Of one process. ``screen``: where to show it, if at all; ``before``: steps cut down earlier.

    ``questions``: how many requests to ``model`` have begun. ``failure``: why the run failed.
    """

    def __init__(self, screen: Screen | None, model: str, before: Collection[str] = ()) -> None:
        self._screen = screen
        self._model = model
        self._before = before
        self._open: dict[str, Any] | None = None
        self.effects: list[Effect] = []
        self.questions = 0
        self.output: Any = None
        self.failure = ""

    @property
    def in_flight(self) -> str:
        """The target of the effect that has begun and not ended."""
        return "" if self._open is None else str(self._open["target"])

    @property
    def cut_down(self) -> set[str]:
        """The step that was in flight when the process ended."""
        return set() if self._open is None else {str(self._open["step_id"])}

    def hear(self, message: dict[str, Any]) -> None:
        """Take one message of ``demo_child``."""
        match message["is"]:
            case "begun":
                self._open = message
                if self._screen is not None:
                    self._screen.begin(message["target"], message["args"])
            case "body":
                self.questions += message["target"] == self._model
            case "replayed":
                self._keep(message, "replayed", message["value"], message["seconds"])
            case "ran" if self._open is not None:
                seconds = message["at"] - self._open["at"]
                self._keep(self._open, "ran", message["value"], seconds)
                self._open = None
            case "output":
                self.output = message["output"]
            case "failed":
                self.failure = message["reason"]

    def end(self, verb: str) -> None:
        """Show what became of the effect that was in flight at the end."""
        if self._open is not None and self._screen is not None:
            self._screen.effect(verb, self._open["target"], self._open["args"])

    def _keep(self, begun: dict[str, Any], how: str, value: str, seconds: float) -> None:
        step_id = begun["step_id"]
        self.effects.append(Effect(step_id, begun["call"], begun["target"], how, value))
        if self._screen is not None:
            verb = f"{how} again" if how == "ran" and step_id in self._before else how
            self._screen.effect(verb, begun["target"], begun["args"], seconds)
