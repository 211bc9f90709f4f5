"""Runs an agent where waitress is not installed, and says what it was told."""

import sys

from support.children import say

import rebuno_sync as rebuno

sys.modules["waitress"] = None  # type: ignore[assignment]
agent = rebuno.Agent("a", secret="s", base_url="http://localhost")
try:
    agent.run(lambda: None)
except ImportError as error:
    say(str(error))
