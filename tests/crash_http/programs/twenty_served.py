"""Serves the handler of twenty effects."""

from __future__ import annotations

from crash.programs.twenty_effects import handler
from serving import serve

serve(handler)
