"""``rebuno-sync kernel``: the embedded kernel as a server."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..delivery import HttpDeliver
from ..errors import StorageError
from ..kernel import Kernel
from ..kernel.embedded import DEFAULT_PATH, LONGEST_SECONDS
from ..kernel.http import KernelApp
from ..serving import Server, Stop, raise_file_limit, stopped_by_signals
from .manifest import ManifestError, read_manifest, register

if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_to", "run"]

_log = logging.getLogger(__name__)

_LOOPBACK = ("127.", "localhost", "::1")
_THREADS = 8
_GRACE_SECONDS = 5.0
_DEFAULT_ADDRESS = "127.0.0.1:8080"


def add_to(commands: _Commands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "kernel",
        help="serve the embedded kernel over HTTP",
        description="Serve the embedded kernel over HTTP: agents are called by webhook and answer"
        " with signed requests; operators send a bearer token. SIGTERM or Ctrl-C stops it.",
    )
    parser.add_argument(
        "--db",
        metavar="FILE",
        default=os.environ.get("REBUNO_DB") or DEFAULT_PATH,
        help=f"the kernel's file, made when missing (default: $REBUNO_DB, else {DEFAULT_PATH})",
    )
    parser.add_argument(
        "--listen",
        metavar="ADDR",
        type=_address,
        default=os.environ.get("REBUNO_LISTEN_ADDR") or _DEFAULT_ADDRESS,
        help="HOST:PORT, :PORT for every interface; port 0 takes a free one (default:"
        f" $REBUNO_LISTEN_ADDR, else {_DEFAULT_ADDRESS})",
    )
    parser.add_argument(
        "--token",
        metavar="T",
        type=_token,
        default=os.environ.get("REBUNO_BEARER_TOKEN") or None,
        help="the operators' bearer token (default: $REBUNO_BEARER_TOKEN, which other users of the"
        " machine cannot see); without one anybody who can connect is an operator",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help="a manifest (YAML): agents that are registered at each start",
    )
    parser.add_argument(
        "--accept-body-signatures",
        action="store_true",
        help="accept requests that sign their body alone, as agents before 0.17 of the async SDK"
        ' do; otherwise only of agents registered with "signature": "body"',
    )
    for option, kind, default, text in (
        ("--lease-timeout", float, 120.0, "seconds after which a silent attempt is taken for dead"),
        ("--max-attempts", int, 5, "attempts in a row that may die without settling a step"),
        ("--deadline", float, None, "seconds after which an execution is cancelled (no limit)"),
    ):
        parser.add_argument(
            option,
            metavar="N" if kind is int else "S",
            type=_Positive(kind),
            default=default,
            help=f"{text}; default: {default}" if default else text,
        )
    parser.add_argument(
        "--retention",
        metavar="S",
        type=_retention,
        default=86400.0,
        help="seconds after its end for which an execution is kept; 0 keeps all (default: a day)",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until a signal says to stop."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # It is no news that a client went, or that its stream was handed over.
    logging.getLogger("waitress").setLevel(logging.WARNING)
    try:
        agents = read_manifest(options.config) if options.config else []
    except ManifestError as error:
        print(f"rebuno-sync kernel: {error}", file=sys.stderr)
        return 1
    raise_file_limit()
    stop = Stop()
    with stopped_by_signals(stop.set):
        try:
            with _listening(options) as (server, front), _opened(options) as kernel:
                body_form = options.accept_body_signatures
                register(kernel, agents)
                if options.config:
                    names = ", ".join(agent.id for agent in agents) or "no agent"
                    _log.info("%s registers %s", options.config, names)
                _warn_of_readers(kernel.path)
                front.set_result(
                    KernelApp(kernel, options.token or "", accept_body_signatures=body_form)
                )
                _serve(kernel, server, options, stop)
        except (ImportError, StorageError, ManifestError) as error:
            print(f"rebuno-sync kernel: {error}", file=sys.stderr)
            return 1
        except _AddressTaken as error:
            print(f"rebuno-sync kernel: {error}; name it with --listen", file=sys.stderr)
            return 2
    return 0


class _AddressTaken(Exception):
    """There can be no server."""


@contextmanager
def _listening(options: argparse.Namespace) -> Iterator[tuple[Server, Future[KernelApp]]]:
    """The server, before there is a file: an address that is taken leaves nothing behind.

    What is asked already waits for the application.
    """
    host, port = options.listen
    front: Future[KernelApp] = Future()
    try:
        server = Server(
            lambda environ, start: front.result()(environ, start),
            host or "0.0.0.0",
            port,
            threads=_THREADS,
        )
    except OSError as error:
        raise _AddressTaken(error.strerror) from None
    try:
        yield server, front
    finally:
        front.cancel()
        server.close(grace=_GRACE_SECONDS)


def _opened(options: argparse.Namespace) -> Kernel:
    return Kernel(
        options.db,
        lease_timeout=options.lease_timeout,
        max_attempts=options.max_attempts,
        deadline=options.deadline,
        retention=options.retention,
    )


def _serve(kernel: Kernel, server: Server, options: argparse.Namespace, stop: Stop) -> None:
    if not options.token and not server.host.startswith(_LOOPBACK):
        _log.warning(
            "no --token: whoever can connect to %s may register agents, create and cancel",
            server.url,
        )
    kernel.deliver_webhooks(HttpDeliver())
    print(f"the kernel listens on {server.url}", flush=True)
    print(f"its file is {kernel.path}", flush=True)
    try:
        stop.wait()
    finally:
        kernel.stop_deliveries()
        server.close(grace=_GRACE_SECONDS)


def _warn_of_readers(path: Path) -> None:
    """The file has the secrets of agents, which are needed in clear to sign."""
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        _log.warning(
            "others can read %s (mode %o), and the secrets of agents in it: chmod 600", path, mode
        )


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no address; write HOST:PORT or :PORT")
    return host.strip("[]"), int(port)


def _token(text: str) -> str:
    """Whoever gives one wants one: a variable that is not set must not open the kernel."""
    if not text or text != text.strip():
        raise argparse.ArgumentTypeError("the token is empty, or has blanks around it")
    return text


def _retention(text: str) -> float | None:
    try:
        return None if text == "0" else float(_Positive(float)(text))
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}; 0 keeps all") from None


class _Positive:
    """Reads a number above zero."""

    def __init__(self, kind: type[float]) -> None:
        self._kind = kind

    def __call__(self, text: str) -> float:
        try:
            value = self._kind(text)
        except ValueError:
            value = 0
        if not 0 < value <= LONGEST_SECONDS:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and at most 1e9")
        return value
