"""Serves an agent whose handler waits for long, in one way or another, until a signal comes."""

import logging
import threading

from support.children import arguments, say

import rebuno_sync as rebuno

given = arguments()


class Address(logging.Handler):
    """Says where the agent serves, which is in the log alone."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if " takes webhooks at " in message:
            say(message.rpartition(" ")[2])


logging.getLogger("rebuno_sync").setLevel(logging.INFO)
logging.getLogger("rebuno_sync").addHandler(Address())


@rebuno.tool
def body(seconds: float) -> str:
    """One that takes its time, after which nothing keeps it."""
    say({"body": "began"})
    threading.Event().wait(seconds)
    say({"body": "ended"})
    return "done"


@rebuno.tool
def waits_in_a_body() -> None:
    say({"waits": 1})
    rebuno.execution().wait(60)


def handler(how: str) -> str:
    if rebuno.execution().dispatch_attempt > 1:
        return how
    match how:
        case "wait":
            say({"waits": 1})
            rebuno.execution().wait(60)
        case "sleep":
            say({"waits": 1})
            rebuno.sleep(60)
        case "sleeps side by side":
            say({"waits": 1})
            rebuno.parallel([(rebuno.sleep, 60.0), (rebuno.sleep, 61.0)])
        case "beside a body":
            rebuno.parallel([(rebuno.sleep, 60.0), (body, 1.5)])
        case "in a body":
            waits_in_a_body()
    return how


agent = rebuno.Agent(
    given["agent"], secret=given["secret"], base_url=given["url"], grace=given["grace"]
)
agent.run(handler, host="127.0.0.1", port=0)
