"""Small effects in a loop; one Ctrl-C at some instant, then the same key again."""

from __future__ import annotations

from support.children import arguments, say

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

given = arguments()


@rebuno.tool
def small(n: int) -> int:
    return n


def handler() -> int:
    return sum(small(n) for n in range(given["effects"]))


with Kernel(given["db"]) as kernel:
    say("ready")
    try:
        got = rebuno.run(handler, key=given["key"], agent="interrupts", kernel=kernel)
    except KeyboardInterrupt:
        say("interrupted")
        got = rebuno.run(handler, key=given["key"], agent="interrupts", kernel=kernel)
    say({"got": got})
