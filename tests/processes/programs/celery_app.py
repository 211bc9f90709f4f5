"""A Celery application whose worker imports it, and uses everything, before it forks."""

import json
import os
import sys

from celery import Celery

GIVEN = json.loads(os.environ["GIVEN"])

app = Celery("of_the_test", broker=GIVEN["broker"], backend=GIVEN["backend"])
app.conf.update(
    broker_transport_options=GIVEN["transport"],
    broker_connection_retry_on_startup=True,
    task_serializer="json",
    worker_hijack_root_logger=False,
)

if "worker" in sys.argv:
    from everything import run, use_once

    use_once()
    app.task(name="run")(run)
