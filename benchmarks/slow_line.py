"""Passes connections on to a port of this machine, every byte late, in a process of its own. It
prints its own port.

    python benchmarks/slow_line.py PORT SECONDS_EACH_WAY
"""

from __future__ import annotations

import socket
import sys
import threading
import time


def pass_on(source: socket.socket, sink: socket.socket, seconds: float) -> None:
    while data := source.recv(65536):
        time.sleep(seconds)
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)


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
