"""Builds an agent and its application, and says what that started."""

import sys
import threading

seen: list[str] = []
sys.addaudithook(lambda event, _: seen.append(event) if event == "socket.connect" else None)

from support.children import say  # noqa: E402

import rebuno_sync as rebuno  # noqa: E402

agent = rebuno.Agent("a", secret="s", base_url="http://localhost:1")
agent.bind(lambda: None)
_ = agent.app
client = rebuno.Client("http://localhost:1")
say({"threads": [thread.name for thread in threading.enumerate()], "connected": bool(seen)})
