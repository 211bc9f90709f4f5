"""A program that is not ours holds a transaction of the file open for a while."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing

from support.children import arguments, say

given = arguments()
with closing(sqlite3.connect(given["db"], isolation_level=None, timeout=60)) as db:
    db.execute(given["begin"])
    before = db.execute("SELECT count(*) FROM events").fetchone()
    say("holds")
    threading.Event().wait(given["seconds"])
    after = db.execute("SELECT count(*) FROM events").fetchone()
    db.execute("ROLLBACK")
say({"changed": before != after})
