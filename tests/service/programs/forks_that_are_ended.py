"""Forks children and ends each at once, as an agent that serves; says how they ended."""

import os
import signal
from collections import Counter

from support.children import say

from rebuno_sync.serving import Stop, stopped_by_signals

ended: Counter[int] = Counter()
with stopped_by_signals(Stop().set):
    for _ in range(200):
        pid = os.fork()
        if not pid:
            signal.alarm(5)
            while True:
                signal.pause()
        os.kill(pid, signal.SIGTERM)
        ended[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])] += 1
say(dict(ended))
