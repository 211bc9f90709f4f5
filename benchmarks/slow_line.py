"""Passes connections on to a port of this machine, every byte late, in a process of its own. It
prints its own port.

    python benchmarks/slow_line.py PORT SECONDS_EACH_WAY
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from queue import SimpleQueue


def pass_on(source: socket.socket, sink: socket.socket, seconds: float) -> None:
    """Each piece leaves ``seconds`` after it came, however many are on their way."""
    under_way: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

    def deliver() -> None:
        while True:
            came, data = under_way.get()
            time.sleep(max(0.0, came + seconds - time.monotonic()))
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            sink.sendall(data)

    threading.Thread(target=deliver, daemon=True).start()
    data = b"..."
    while data:
        data = source.recv(65536)
        under_way.put((time.monotonic(), data))


def main() -> None:
    port, seconds = int(sys.argv[1]), float(sys.argv[2])
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listening.getsockname()[1], flush=True)
    while True:
        near, _ = listening.accept()
        far = socket.create_connection(("127.0.0.1", port))
        for source, sink in ((near, far), (far, near)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=pass_on, args=(source, sink, seconds), daemon=True).start()


if __name__ == "__main__":
    main()
