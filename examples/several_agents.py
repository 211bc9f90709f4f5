"""Several agents in one process, behind one server: each has an id, a secret and a path.

rebuno-sync kernel --db kernel.db
REBUNO_URL=http://127.0.0.1:8080 python examples/several_agents.py

PORT is the server's (5000 unless set). It ends when both agents have answered.
"""

import os
import threading

from waitress.server import create_server

import rebuno_sync as rebuno

PORT = int(os.environ.get("PORT", "5000"))
SECRETS = {"research": "the first secret", "write": "the second secret"}

research = rebuno.Agent("research", secret=SECRETS["research"], webhook_path="/research")
write = rebuno.Agent("write", secret=SECRETS["write"], webhook_path="/write")
AGENTS = {agent.webhook_path: agent for agent in (research, write)}


@rebuno.tool
def search(topic: str) -> list[str]:
    return [f"{topic} is old", f"{topic} is large"]


@rebuno.tool
def join(facts: list[str]) -> str:
    return ", and ".join(facts)


@research.bind
def find(topic: str) -> list[str]:
    return search(topic)


@write.bind
def compose(facts: list[str]) -> str:
    return join(facts)


def app(environ, start):
    """Each agent's WSGI application at its path; any other path is the first one's 404."""
    return AGENTS.get(environ["PATH_INFO"], research).app(environ, start)


if __name__ == "__main__":
    server = create_server(app, host="127.0.0.1", port=PORT)
    threading.Thread(target=server.run, daemon=True).start()
    with rebuno.Client() as client, research, write:  # Both are closed at the end.
        for path, agent in AGENTS.items():
            url = f"http://127.0.0.1:{PORT}{path}"
            client.register_agent(agent.agent_id, url, SECRETS[agent.agent_id])
        facts = client.run("research", {"topic": "Rome"}, timeout=60)
        print(client.run("write", {"facts": facts}, timeout=60))
