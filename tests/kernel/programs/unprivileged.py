"""Opens a kernel as a user without privileges, and says which error that gave."""

from __future__ import annotations

import os

from support.children import arguments, say

from rebuno_sync.kernel import Kernel

NOBODY = 65534

given = arguments()
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
try:
    with Kernel(given["db"]) as kernel:
        kernel.register_agent("agent")
except Exception as error:
    say([type(error).__name__, str(error)])
else:
    say(["", "it could be opened and written"])
