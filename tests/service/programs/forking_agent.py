"""Serves an agent whose handler ends forked children, and says how each of them ended."""

import logging
import multiprocessing
import threading

from support.children import arguments, say

import rebuno_sync as rebuno

given = arguments()
forks = multiprocessing.get_context("fork")


class Address(logging.Handler):
    """Says where the agent serves, which is in the log alone."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if " takes webhooks at " in message:
            say(message.rpartition(" ")[2])


logging.getLogger("rebuno_sync").setLevel(logging.INFO)
logging.getLogger("rebuno_sync").addHandler(Address())


began = forks.Semaphore(0)


def hang(_: object = None) -> None:
    began.release()
    threading.Event().wait(60)


def square(number: int) -> int:
    return number * number


@rebuno.tool
def terminate_a_process() -> int | None:
    child = forks.Process(target=hang)
    child.start()
    began.acquire(timeout=20)
    child.terminate()
    child.join(10)
    status = child.exitcode
    child.kill()
    return status


@rebuno.tool
def leave_a_pool() -> list[int]:
    with forks.Pool(2) as pool:  # Its end terminates the processes.
        return pool.map(square, range(4))


@rebuno.tool
def terminate_a_busy_pool() -> list[int | None]:
    pool = forks.Pool(2)
    pool.map_async(hang, range(2))
    began.acquire(timeout=20)
    began.acquire(timeout=20)
    processes: list[multiprocessing.Process] = pool._pool  # type: ignore[attr-defined]
    pool.terminate()
    pool.join()
    return [process.exitcode for process in processes]


def handler() -> list[object]:
    return [terminate_a_process(), leave_a_pool(), terminate_a_busy_pool()]


agent = rebuno.Agent("forking", secret=given["secret"], base_url=given["url"], grace=1.0)
agent.run(handler, host="127.0.0.1", port=0)
