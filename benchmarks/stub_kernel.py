"""A kernel that lets everything proceed and records nothing, in a process of its own: what an agent
costs by itself. It prints its port.

It answers on plain sockets, in one thread for each connection, as little as it can.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from itertools import count

IDS = count(1)
NOW = "2026-01-01T00:00:00Z"
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
EXECUTION = {"id": "", "agent_id": "bench", "status": "running", "created_at": NOW}
EXECUTION |= {"updated_at": NOW, "input": None}


def decision() -> str:
    return f'{{"decision":"proceed","step_id":"{next(IDS):064x}"}}'


def answer(method: bytes, path: bytes, body: bytes) -> str:
    last = path.rpartition(b"/")[2]
    if method == b"GET" and last.startswith(b"steps"):
        return "[]"
    if method == b"GET":
        return json.dumps({**EXECUTION, "id": last.decode()})
    if last == b"steps":
        return decision()
    if last == b"batch":
        results = []
        for operation in json.loads(body)["operations"]:
            if operation["op"] == "submit":
                results.append(f'{{"status":200,"body":{decision()}}}')
            else:
                results.append('{"status":200,"body":{"decision":"recorded"}}')
        return f'{{"results":[{",".join(results)}]}}'
    return '{"decision":"recorded"}'


def serve(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    received = b""
    while True:
        while b"\r\n\r\n" not in received:
            more = sock.recv(65536)
            if not more:
                return
            received += more
        head, _, rest = received.partition(b"\r\n\r\n")
        found = LENGTH.search(head)
        length = int(found.group(1)) if found else 0
        while len(rest) < length:
            rest += sock.recv(65536)
        method, path, _ = head.split(b" ", 2)
        content = answer(method, path, rest[:length]).encode()
        received = rest[length:]
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content)


def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listening.getsockname()[1], flush=True)
    while True:
        sock, _ = listening.accept()
        threading.Thread(target=serve, args=(sock,), daemon=True).start()


if __name__ == "__main__":
    main()
