"""Claims an execution and holds its lease until it is killed."""

from __future__ import annotations

import threading

from support.children import arguments, say

from rebuno_sync.kernel import Kernel

given = arguments()
with Kernel(given["db"]) as kernel:
    claim = kernel.claim(given["execution"])
    assert claim is not None
    say("held")
    threading.Event().wait()
