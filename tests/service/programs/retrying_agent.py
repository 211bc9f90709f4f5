"""Serves an agent whose one effect fails until it has been tried often enough."""

import logging

from support.children import arguments, say
from support.effect_log import EffectLog

import rebuno_sync as rebuno
from rebuno_sync.retrying import RetryPolicy

given = arguments()
effects = EffectLog(given["log"])


class Address(logging.Handler):
    """Says where the agent serves, which is in the log alone."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if " takes webhooks at " in message:
            say(message.rpartition(" ")[2])


logging.getLogger("rebuno_sync").setLevel(logging.INFO)
logging.getLogger("rebuno_sync").addHandler(Address())


class Busy(Exception):
    """Proves that nothing has happened."""


@rebuno.tool(
    idempotency="at_most_once",
    retries=RetryPolicy(
        attempts=3, first_wait=given["wait"], factor=1, longest_wait=60, jitter=0, on=Busy
    ),
)
def charge() -> str:
    effects.append("try")
    if effects.count("try") < given["succeeds_at"]:
        raise Busy
    return f"charged at try {effects.count('try')}"


def handler() -> str:
    return charge()


agent = rebuno.Agent(
    given["agent"], secret=given["secret"], base_url=given["url"], grace=given.get("grace", 10)
)
agent.run(handler, host="127.0.0.1", port=0)
